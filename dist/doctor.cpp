// SPDX-License-Identifier: MIT
// dist/doctor.cpp - texts compared line by line, and the exchange of findings.
#include "dist/doctor.h"

#include <charconv>
#include <cmath>
#include <span>

#include "core/checksum.h"

namespace brigade::dist {
namespace {

// Line `index` of `text`, or "nothing" behind its end.
std::string line_at(const std::string& text, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < text.size(); --index) begin = text.find('\n', begin) + 1;
  return begin < text.size() ? text.substr(begin, text.find('\n', begin) - begin) : "nothing";
}

// The first line in which the two differ.
std::size_t first_difference(const std::string& a, const std::string& b) {
  std::size_t index = 0;
  while (line_at(a, index) == line_at(b, index)) ++index;
  return index;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// At most five entries of a list that may be long.
class ShortList {
 public:
  void add(const std::string& text) {
    if (++count_ <= 5) text_ += str(count_ > 1 ? ", " : "", text);
  }
  int count() const { return count_; }
  std::string text() const { return count_ > 5 ? str(text_, " and ", count_ - 5, " more") : text_; }

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace

void check_memory(const optim::FlatParameters& parameters) {
  for (int i = 0; i < parameters.count(); ++i)
    BRIGADE_CHECK(parameters.holds(i), "ddp: parameter \"", parameters.at(i).name,
                  "\" was moved to other memory after the model was wrapped; wrap again, and give optimizers "
                  "Ddp::parameters()");
}

void refuse_replaced(const optim::FlatParameters& parameters, std::span<const Variable> unobserved,
                     const std::vector<bool>& awaited) {
  for (const Variable& leaf : unobserved)
    for (int i = 0; i < parameters.count(); ++i)
      BRIGADE_CHECK(awaited[static_cast<std::size_t>(i)] || !parameters.at(i).variable.requires_grad() ||
                        parameters.at(i).variable.shape() != leaf.shape(),
                    "ddp: parameter \"", parameters.at(i).name,
                    "\" takes no part, but another leaf of shape ", leaf.shape(),
                    " does: was it replaced after the model was wrapped? wrap again");
}

void check_same_model(ProcessGroup& group, const std::vector<nn::NamedParameter>& parameters,
                      const std::vector<nn::NamedBuffer>& buffers) {
  std::vector<std::string> lines;
  for (const auto& p : parameters)
    lines.push_back(
        str("parameter ", p.name, " ", p.variable.value(), p.variable.requires_grad() ? "" : " frozen"));
  for (const auto& b : buffers) lines.push_back(str("buffer ", b.name, " ", b.tensor));

  const std::vector<std::string> all = group.all_gather_text(joined(lines));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::size_t index = first_difference(all[0], all[rank]);
    fail(str("ddp: ranks built different models; first difference at index ", index, ": rank 0 has ",
             line_at(all[0], index), ", rank ", rank, " has ", line_at(all[rank], index)));
  }
}

std::string difference(Transport& transport, const std::vector<std::string>& mine) {
  const std::vector<std::string> all = gather_texts(transport, joined(mine));
  std::string out;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::size_t index = first_difference(all[0], all[rank]);
    out += str(out.empty() ? "" : "; ", "rank ", rank, ": expected ", line_at(all[0], index),
               " as on rank 0, got ", line_at(all[rank], index));
  }
  return out;
}

bool loss_is_finite(const Variable& root) {
  return root.numel() != 1 || !is_floating(root.dtype()) || root.value().device() != Device{} ||
         std::isfinite(root.item());
}

std::vector<std::uint64_t> parameter_sums(const optim::FlatParameters& parameters) {
  std::vector<std::uint64_t> sums;
  for (int i = 0; i < parameters.count(); ++i) {
    const Tensor value = parameters.at(i).variable.value().to({});
    sums.push_back(
        checksum(std::span<const std::byte>(value.raw(), static_cast<std::size_t>(value.bytes()))));
  }
  return sums;
}

std::string hex(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  const std::string text(digits, end);
  return std::string(16 - text.size(), '0') + text;
}

std::string describe_findings(const std::vector<Finding>& findings, const std::vector<bool>& loss_finite,
                              const optim::FlatParameters& parameters, std::string_view hook) {
  for (std::size_t rank = 0; rank < findings.size(); ++rank) {
    const Finding& found = findings[rank];
    if (found.kind == Finding::Kind::none) continue;
    const char* what =
        loss_finite[rank] ? "the loss is finite, but the gradient is not" : "the loss is not finite";
    const std::string where = str("bucket ", found.bucket, ", parameter \"",
                                  parameters.at(static_cast<int>(found.position)).name, "\"");
    if (found.kind == Finding::Kind::mean_not_finite)
      return str("all gradients are finite, but their weighted or 16-bit mean is not; first in ", where);
    return str(found.kind == Finding::Kind::overflow
                   ? str("the gradient overflows the type that comm hook ", hook, " sends")
                   : std::string(what),
               "; first on rank ", rank, ", ", where);
  }
  for (std::size_t rank = 0; rank < findings.size(); ++rank)
    if (!loss_finite[rank])
      return str("the loss is not finite, although all gradients are; first on rank ", rank);
  return "";
}

std::string describe_unused(const RollCall& roll_call, const optim::FlatParameters& parameters) {
  ShortList unused;
  for (int i = 0; i < parameters.count(); ++i)
    if (roll_call.users(i) < roll_call.active() && roll_call.frozen(i) == 0)
      unused.add(str("\"", parameters.at(i).name, "\" (used on ", roll_call.users(i), " of ",
                     roll_call.active(), " ranks)"));
  if (unused.count() == 0) return "";
  return str(unused.count(), " of ", parameters.count(),
             " parameters took no part in the loss on some rank: ", unused.text());
}

std::string describe_half_frozen(const RollCall& roll_call, const optim::FlatParameters& parameters) {
  ShortList half;
  const int size = static_cast<int>(roll_call.entries().size());
  for (int i = 0; i < parameters.count(); ++i)
    if (const int frozen = roll_call.frozen(i); frozen > 0 && frozen < size)
      half.add(str("\"", parameters.at(i).name, "\" (on ", frozen, " of ", size, " ranks)"));
  return half.text();
}

Verdict::Verdict(ProcessGroup& group, const Finding& mine, std::shared_ptr<const Finding> later)
    : findings_(std::make_shared<std::vector<Finding>>()) {
  constexpr std::int64_t kWords = 3;
  const auto exchange = [mine, later, findings = findings_](Transport& transport) {
    const Finding& found = mine.kind != Finding::Kind::none ? mine : *later;
    const Tensor sent = Tensor::from(
        std::vector<std::int64_t>{static_cast<std::int64_t>(found.kind), found.position, found.bucket},
        {kWords});
    Tensor all = Tensor::empty({transport.size() * kWords}, DType::i64);
    transport.all_gather(sent, all);
    const std::int64_t* words = all.data<std::int64_t>();
    for (int rank = 0; rank < transport.size(); ++rank, words += kWords)
      findings->push_back({static_cast<Finding::Kind>(words[0]), words[1], words[2]});
  };
  work_ = group.run({.operation = "verdict", .run = exchange, .agreed = true});
}

const std::vector<Finding>& Verdict::wait() const {
  work_.wait();
  return *findings_;
}

}  // namespace brigade::dist
