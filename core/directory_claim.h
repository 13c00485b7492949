// SPDX-License-Identifier: MIT
// core/directory_claim.h - one program at a time writes into a directory.
#pragma once

#include <filesystem>

namespace brigade {

/// Held until destroyed, and dropped by the system with the process: nothing is left behind. File systems without locks
/// do without.
class DirectoryClaim {
 public:
  DirectoryClaim() = default;
  explicit DirectoryClaim(const std::filesystem::path& directory);
  ~DirectoryClaim();
  DirectoryClaim(DirectoryClaim&& other) noexcept;
  DirectoryClaim& operator=(DirectoryClaim&& other) noexcept;

  /// Another claim holds the directory.
  bool refused() const { return refused_; }

 private:
  int directory_ = -1;  // Open and locked.
  bool refused_ = false;
};

}  // namespace brigade
