// SPDX-License-Identifier: MIT
// apps/telemetry/ddp_logging.h - ddp_logging.json of a run directory: what PyTorch's DistributedDataParallel says of
// itself (_get_ddp_logging_data; c10/util/Logging.h), under its names, in its units and by its definitions, for tools
// and people that know those. Only fields that mean the same here are in it. Read before: dist/ledger.h.
#pragma once

#include <filesystem>
#include <string>

#include "dist/ddp.h"

namespace brigade::telemetry {

/// One JSON object: sizes in bytes, times in nanoseconds; of the last step, and "avg_" of those the ledger still has.
/// `model`: its name. Times are left out before the first step.
std::string ddp_logging_json(const dist::Ddp& ddp, const std::string& model);

/// `directory`/ddp_logging.json, complete or not there.
void write_ddp_logging(const std::filesystem::path& directory, const dist::Ddp& ddp,
                       const std::string& model);

}  // namespace brigade::telemetry
