// SPDX-License-Identifier: MIT
// dist/checkpoint/checkpoint_writer.cpp - copies on the training thread, files on a thread of their own.
#include "dist/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/fault_point.h"
#include "kernels/ops.h"

namespace brigade::dist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWho = "checkpoint";

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Tensors of `all` that belong to a parameter: "momentum.conv1.weight" to conv1.weight, as does "conv1.weight".
NamedTensors of_parameter(const NamedTensors& all, const std::string& parameter, bool with_kind) {
  NamedTensors out;
  for (const auto& [name, tensor] : all) {
    const std::size_t kind =
        with_kind ? name.find('.') + 1 : 0;  // No kind: find gives npos, and that plus 1 is 0.
    if (name.compare(kind, std::string::npos, parameter) == 0) out.emplace_back(name, tensor);
  }
  return out;
}

// In memory of the host: what lies on a device comes from there, behind its step, and is waited for.
NamedTensors copies(const NamedTensors& tensors) {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors)
    out.emplace_back(name, tensor.device() == Device{} ? ops::clone(tensor) : tensor.to(Device{}));
  return out;
}

void write_all(SafetensorsWriter& file, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) file.add(name, tensor);
}

// What a rank tells the others when its files are on disk, or are not.
struct Report {
  std::string error;
  std::vector<CheckpointFile> files;
  Generator generator;

  std::string to_json() const {
    nlohmann::json json{{"error", error},
                        {"files", nlohmann::json::array()},
                        {"generator", {generator.seed, generator.next_stream}}};
    for (const CheckpointFile& file : files)
      json["files"].push_back({file.name, file.digest.bytes, file.digest.xxh3_128});
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  static Report from_json(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    Report report{json["error"], {}, {json["generator"][0], json["generator"][1]}};
    for (const auto& file : json["files"]) report.files.push_back({file[0], {file[1], file[2]}});
    return report;
  }
};

}  // namespace

// One checkpoint. Touched by the training thread until its tasks are queued and when they are done, else by theirs.
struct CheckpointWriter::Save {
  std::int64_t step = 0;
  fs::path partial;
  Clock::time_point begin = Clock::now();
  double copy_s = 0, seconds = 0;
  Manifest manifest;
  Report report;
  Event written;
  const TrainingState* state = nullptr;  // Until end().

  // Rank 0: by position, what is saved of a parameter.
  std::vector<NamedTensors> model, optimizer;
  NamedTensors model_rest;
  std::optional<SafetensorsWriter> model_file, optimizer_file;
  int next_position = 0;
};

CheckpointWriter::CheckpointWriter(ProcessGroup& group, CheckpointWriterOptions options)
    : group_(&group), options_(std::move(options)), stream_(make_worker_stream("checkpoint")) {
  BRIGADE_CHECK(options_.keep_last >= 1, "checkpoint: keeps at least 1; got ", options_.keep_last);
  stream_->submit([rank = group.rank()] { set_fault_rank(rank, FaultThreads::this_one); });
  const fs::path probe = options_.folder / ".probe";
  std::string problem;
  if (group.rank() == 0) {
    try {
      std::error_code error;
      fs::create_directories(options_.folder, error);
      BRIGADE_CHECK(!error, "checkpoint: cannot create ", options_.folder.string(), ": ", error.message());
      claim_ = DirectoryClaim(options_.folder);
      BRIGADE_CHECK(!claim_.refused(), "checkpoint: another run writes to ", options_.folder.string());
      write_durably(probe, "", kWho, *options_.files);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  problem = group.all_gather_text(problem).front();
  BRIGADE_CHECK(problem.empty(), problem);
  // Each rank writes there: one that is on another host needs the same folder.
  std::error_code ignored;
  const auto seen = group.all_gather_text(fs::exists(probe, ignored) ? "y" : "n");
  if (group.rank() == 0) fs::remove(probe, ignored);
  for (std::size_t r = 0; r < seen.size(); ++r)
    BRIGADE_CHECK(seen[r] == "y", "checkpoint: rank ", r, " does not see ", options_.folder.string(),
                  " as rank 0 does; it must be on a file system that all ranks share");
}

CheckpointWriter::~CheckpointWriter() {
  stream_.reset();  // Drops what has not begun.
  if (!save_) return;
  save_->model_file.reset();
  save_->optimizer_file.reset();
  std::error_code ignored;
  if (group_->rank() == 0) fs::remove_all(save_->partial, ignored);
}

// A failure is kept: what comes behind it has nothing to add.
void CheckpointWriter::queue(std::function<void(Save&)> task) {
  stream_->submit([save = save_, task = std::move(task)] {
    if (!save->report.error.empty()) return;
    set_fault_step(save->step);
    try {
      task(*save);
    } catch (const std::exception& error) {
      save->report.error = error.what();
    }
  });
}

void CheckpointWriter::begin(std::int64_t step, const TrainingState& state) {
  BRIGADE_CHECK(!save_, "checkpoint: one of step ", save_ ? save_->step : 0, " is under way; drain() first");
  save_ = std::make_shared<Save>();
  committed_ = false;
  Save& save = *save_;
  save.step = step;
  save.state = &state;
  save.partial = options_.folder / partial_name(step);
  // Every rank may be the first.
  queue([this](Save& s) { make_directory(s.partial, kWho, *options_.files); });
  if (group_->rank() != 0) return;

  const optim::FlatParameters& parameters = state.optimizer->parameters();
  const NamedTensors optimizer = state.optimizer->state();
  std::set<std::string> of_buckets;
  NamedTensors in_order, optimizer_in_order;
  for (int i = 0; i < parameters.count(); ++i) {
    const std::string& name = parameters.at(i).name;
    save.model.push_back(of_parameter(state.model, name, false));
    save.optimizer.push_back(of_parameter(optimizer, name, true));
    of_buckets.insert(name);
    in_order.insert(in_order.end(), save.model.back().begin(), save.model.back().end());
    optimizer_in_order.insert(optimizer_in_order.end(), save.optimizer.back().begin(),
                              save.optimizer.back().end());
  }
  BRIGADE_CHECK(optimizer_in_order.size() == optimizer.size(),
                "checkpoint: the optimizer has state of no parameter");
  for (const auto& entry : state.model)
    if (!of_buckets.contains(entry.first)) save.model_rest.push_back(entry);
  in_order.insert(in_order.end(), save.model_rest.begin(), save.model_rest.end());
  queue([this, specs = specs_of(in_order, kWho), more = specs_of(optimizer_in_order, kWho)](Save& s) {
    s.model_file.emplace(s.partial / kModelFile, specs, Metadata{{"format", "pt"}}, *options_.files);
    s.optimizer_file.emplace(s.partial / kOptimizerFile, more, Metadata{}, *options_.files);
  });
}

void CheckpointWriter::add(optim::Range range) {
  BRIGADE_CHECK(save_ && save_->state != nullptr, "checkpoint: add() comes between begin() and end()");
  Save& save = *save_;
  BRIGADE_CHECK(range.begin == save.next_position, "checkpoint: positions must come in order; got ",
                range.begin, " after ", save.next_position);
  save.next_position = range.end;
  if (group_->rank() != 0) return;
  const auto begin = Clock::now();
  NamedTensors model, optimizer;
  for (int i = range.begin; i < range.end; ++i) {
    for (auto& copy : copies(save.model[static_cast<std::size_t>(i)])) model.push_back(std::move(copy));
    for (auto& copy : copies(save.optimizer[static_cast<std::size_t>(i)]))
      optimizer.push_back(std::move(copy));
  }
  queue([model = std::move(model), optimizer = std::move(optimizer)](Save& s) {
    write_all(*s.model_file, model);
    write_all(*s.optimizer_file, optimizer);
  });
  save.copy_s += seconds_since(begin);
}

void CheckpointWriter::end(Manifest facts) {
  BRIGADE_CHECK(save_ && save_->state != nullptr, "checkpoint: end() comes behind begin()");
  Save& save = *save_;
  const TrainingState& state = *save.state;
  const int count = state.optimizer->parameters().count();
  if (save.next_position < count) add({save.next_position, count});
  save.state = nullptr;
  save.manifest = std::move(facts);
  save.manifest.step = save.step;
  save.manifest.world_size = group_->size();
  save.manifest.optimizer_steps = state.optimizer->steps();
  save.report.generator = *state.generator;

  const auto begin = Clock::now();
  queue([this, own = copies(state.of_rank), rank = group_->rank()](Save& s) {
    const std::string name = rank_file_name(rank);
    s.report.files.push_back({name, save_safetensors(s.partial / name, own, {}, *options_.files)});
  });
  if (group_->rank() == 0) {
    queue([rest = copies(save.model_rest)](Save& s) {
      write_all(*s.model_file, rest);
      s.report.files.push_back({kModelFile, s.model_file->commit()});
      s.report.files.push_back({kOptimizerFile, s.optimizer_file->commit()});
    });
    if (state.ema != nullptr)
      queue([this, average = copies(state.ema->state())](Save& s) {
        s.report.files.push_back(
            {kEmaFile, save_safetensors(s.partial / kEmaFile, average, {}, *options_.files)});
      });
  }
  save.copy_s += seconds_since(begin);
  save.written = stream_->record();
}

bool CheckpointWriter::awaits_commit() const { return save_ && save_->state == nullptr && !committed_; }
bool CheckpointWriter::unfinished() const { return awaits_commit() && !save_->written.done(); }

void CheckpointWriter::commit() {
  BRIGADE_CHECK(awaits_commit(), "checkpoint: there is nothing to commit");
  save_->written.wait();
  committed_ = true;
  Manifest& manifest = save_->manifest;
  std::string problem;
  const auto reports = group_->all_gather_text(save_->report.to_json());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const Report report = Report::from_json(reports[rank]);
    if (problem.empty() && !report.error.empty())
      problem = group_->size() == 1 ? report.error : str("rank ", rank, ": ", report.error);
    manifest.files.insert(manifest.files.end(), report.files.begin(), report.files.end());
    manifest.generators.push_back(report.generator);
  }
  if (group_->rank() != 0) return save_.reset();
  save_->report.error = problem;  // Then nothing is made complete.
  queue([this](Save& s) {
    const std::string text = manifest_to_json(s.manifest);
    write_durably(s.partial / kManifestFile, text, kWho, *options_.files);
    Checksum128 sum;
    sum.update(std::as_bytes(std::span(text)));
    write_durably(s.partial / kMarkerFile, sum.hex() + "\n", kWho, *options_.files);
    const std::string name = checkpoint_name(s.step);
    remove_checkpoint(options_.folder, s.step,
                      *options_.files);  // A broken one: see refuse_later_checkpoints().
    rename_durably(s.partial, options_.folder / name, kWho, *options_.files);
    write_durably(options_.folder / "latest", name + "\n", kWho, *options_.files);
    sound_.insert(s.step);
    prune_checkpoints(options_.folder, options_.keep_last, sound_, *options_.files);
  });
  stream_->submit([save = save_] { save->seconds = seconds_since(save->begin); });
  save_->written = stream_->record();
}

std::optional<SaveOutcome> CheckpointWriter::outcome() {
  if (!save_ || !committed_ || !save_->written.done()) return std::nullopt;
  SaveOutcome outcome{
      .step = save_->step, .error = save_->report.error, .copy_s = save_->copy_s, .seconds = save_->seconds};
  for (const CheckpointFile& file : save_->manifest.files) outcome.bytes += file.digest.bytes;
  save_->model_file.reset();  // What was not committed goes before its directory does.
  save_->optimizer_file.reset();
  std::error_code ignored;
  if (!outcome.error.empty()) fs::remove_all(save_->partial, ignored);
  save_.reset();
  return outcome;
}

std::optional<SaveOutcome> CheckpointWriter::drain() {
  if (awaits_commit()) commit();
  if (save_) save_->written.wait();
  const std::optional<SaveOutcome> mine = outcome();  // Of rank 0, the only one that commits.
  nlohmann::json told;
  if (mine) told = {mine->step, mine->error, mine->bytes, mine->copy_s, mine->seconds};
  const auto heard = nlohmann::json::parse(group_->all_gather_text(told.dump()).front());
  if (heard.is_null()) return std::nullopt;
  return SaveOutcome{heard[0], heard[1], heard[2], heard[3], heard[4]};
}

}  // namespace brigade::dist
