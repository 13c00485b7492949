// SPDX-License-Identifier: MIT
// apps/common/train_rank_flags.cpp - flags about ranks: how they talk, when gradients travel and in what pieces,
// and the network between them.
#include "apps/common/train_flags.h"
#include "core/choices.h"
#include "dist/buffer_sync.h"

namespace brigade::apps {

std::vector<dist::PlanRule> named_rules() {
  std::vector<dist::PlanRule> out;
  for (const dist::PlanRule& rule : dist::plan_rules())
    if (!rule.needs_json) out.push_back(rule);
  return out;
}

void add_rank_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Ranks");
  group
      ->add_option("--ranks", o.ranks,
                   "Ranks as threads of this process; under mpirun or torchrun the launcher decides")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  group
      ->add_option(
          "--backend", o.backend,
          "How ranks talk: mpi under mpirun, tcp with torchrun's RANK, WORLD_SIZE, MASTER_ADDR and "
          "MASTER_PORT, both through shared memory inside a host (plain_mpi: not even there), else threads")
      ->check(one_of(dist::backend_names()))
      ->capture_default_str();
  group->add_option("--algorithm", o.algorithm, "All-reduce: auto is the backend's own")
      ->check(one_of(dist::algorithm_names()))
      ->capture_default_str();
  group
      ->add_option("--device", o.device,
                   "Where ranks compute: auto takes GPUs if every rank has one, and no network is modelled")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  group->add_flag(
      "--cuda-graph", o.cuda_graph,
      "Record a step on the GPU once, communication included, and repeat it; needs NCCL or one rank");
  group
      ->add_option("--threads", o.threads,
                   "Compute threads per rank; default: $OMP_NUM_THREADS in a job of several processes, else "
                   "cores / ranks on this host")
      ->check(CLI::Range(1, 1024));
  group
      ->add_option("--timeout", o.timeout,
                   "Seconds to wait for a peer before giving up, from the start to the end")
      ->check(CLI::Range(0.001, 1e7))
      ->capture_default_str();
  group
      ->add_option("--bn-buffers", o.bn_buffers,
                   table_help("Running statistics of batch norm, settled before evaluation and saving:",
                              dist::buffer_policies()))
      ->check(one_of(names(dist::buffer_policies())))
      ->capture_default_str();
  group->add_flag("--find-unused", o.find_unused,
                  "Parameters without part in the loss count as zero instead of being an error");
  group
      ->add_option("--non-finite", o.non_finite,
                   "A gradient of some rank that is infinite or NaN: error ends the run on all ranks before "
                   "an update, "
                   "skip drops the step on all ranks")
      ->check(CLI::IsMember({"error", "skip", "ignore"}))
      ->capture_default_str();
  group
      ->add_option("--check-every", o.check_every,
                   "Compare a checksum of all parameters every K steps; 0: never")
      ->check(not_negative())
      ->type_name("K")
      ->capture_default_str();
  group->add_flag("--deterministic", o.deterministic,
                  "Add ranks up in rank order, so that results do not depend on bucket sizes with more than "
                  "two ranks either");
}

void add_sync_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Gradients");
  group->add_option("--sync", o.sync, table_help("When gradients travel:", dist::strategies()))
      ->check(one_of(names(dist::strategies())))
      ->capture_default_str();
  group
      ->add_option(
          "--plan", o.plan,
          table_help("Where --sync bucketed cuts, a rule or the FILE of --save-plan:", named_rules()))
      ->type_name("RULE|FILE")
      ->capture_default_str();
  group
      ->add_option(
          "--bucket-mb", o.bucket_mb,
          "Cap of a bucket in MiB; a larger parameter gets its own. A list like 1,4,16 gives each bucket its "
          "cap, the last one for the rest; default: 4")
      ->delimiter(',')
      ->type_name("MIB[,MIB...]");
  group->add_option("--first-bucket-mb", o.first_bucket_mb, "Cap of the bucket that is sent first, in MiB")
      ->capture_default_str();
  group->add_option("--last-bucket-mb", o.last_bucket_mb,
                    "Cap of the bucket that is sent last, in MiB; default: none of its own");
  group->add_option("--min-bucket-kb", o.min_bucket_kb, "Smaller buckets, in KiB, join their neighbour")
      ->check(not_negative())
      ->capture_default_str();
  group->add_flag("--split-large", o.split_large,
                  "Cut parameters over the cap into several buckets (--plan size)");
  group
      ->add_option(
          "--bucket-order", o.bucket_order,
          "Order in flat memory and of launching: reverse, forward, memory (largest first), norm_first, "
          "random:SEED, or ready (as rank 0 observes it in one backward)")
      ->capture_default_str();
  group
      ->add_option("--comm-hook", o.comm_hook,
                   table_help("What travels; some take a number, as in topk:0.001:", dist::comm_hooks()))
      ->type_name("HOOK[:NUMBER]")
      ->capture_default_str();
  group
      ->add_option("--divide", o.divide,
                   "Where the sum over ranks becomes a mean; auto: after, as all sums are f32 or wider")
      ->check(CLI::IsMember({"auto", "before", "after", "split"}))
      ->capture_default_str();
  group->add_flag("--print-plan", o.print_plan, "Print the bucket plan");
  group
      ->add_option("--save-plan", o.save_plan,
                   "Write the bucket plan that was in use last, as JSON for --plan")
      ->type_name("FILE");
}

void add_network_flags(CLI::App& app, Raw& raw) {
  TrainOptions& o = raw.options;
  const auto group = app.add_option_group("Modelled network");
  const auto net =
      group
          ->add_option("--net", o.net,
                       "Bandwidth, latency and jitter of a link, like 1gbit,50us or 1gbit,50us,5%")
          ->type_name("LINK");
  group
      ->add_option("--net-schedule", o.net_schedule, "Change the bandwidth at steps, like 0:10gbit,200:1gbit")
      ->type_name("STEP:BANDWIDTH,...")
      ->needs(net);
  group
      ->add_option(
          "--slow-rank", o.slow_rank,
          "One rank has only a fraction of the bandwidth, like 2:0.5; all wait for its wire, so none is "
          "named as straggler")
      ->type_name("RANK:FRACTION")
      ->needs(net);
}

}  // namespace brigade::apps
