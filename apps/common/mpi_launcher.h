// SPDX-License-Identifier: MIT
// apps/common/mpi_launcher.h - which MPI: of a library, and of the mpirun that would start ranks. A library of one
// family under the launcher of another makes each process believe that it is rank 0 of 1.
// Read next: apps/launch/command.h, apps/doctor/mpi_checks.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace brigade::apps {

/// MPICH's family has the launcher Hydra: MPICH, Intel MPI, MVAPICH.
enum class MpiFamily { open_mpi, mpich, unknown };

struct MpiVersion {
  MpiFamily family = MpiFamily::unknown;
  std::string number = {};   ///< "4.1.4"; empty if the text has none.
  std::string text() const;  ///< "Open MPI 4.1.4"
  int major() const;         ///< 4; 0 if not known.
};

/// Reads what `mpirun --version` prints, and what MPI_Get_library_version returns.
MpiVersion parse_mpi_version(std::string_view text);

/// The MPI that this build uses, as loaded now; nothing without one.
std::optional<MpiVersion> mpi_of_this_build();

struct MpiLauncher {
  std::string name;  ///< As looked for: "mpirun".
  std::string path;  ///< Where it was found.
  MpiVersion version;
};

/// The launcher called `name`, a file or a word to be found on the PATH. Runs it with --version, which it has some
/// seconds for.
std::optional<MpiLauncher> find_mpi_launcher(const std::string& name);

/// The names by which a launcher of `family` may be found, the usual ones first.
std::vector<std::string> mpi_launcher_names(MpiFamily family);

/// "apt-get install openmpi-bin": how to get a launcher of `family`.
std::string how_to_install_launcher(MpiFamily family);

/// The file that `name` means: itself if it has a slash, else the first of that name on the PATH that may be run;
/// empty if there is none.
std::string find_program(const std::string& name);

}  // namespace brigade::apps
