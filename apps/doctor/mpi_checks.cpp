// SPDX-License-Identifier: MIT
// apps/doctor/mpi_checks.cpp - one family of MPI for library and launcher, and how its ranks may read each other.
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "apps/common/mpi_launcher.h"
#include "apps/doctor/checks.h"
#include "core/check.h"

namespace brigade::doctor {
namespace {

using apps::MpiFamily;
using apps::MpiVersion;

// The family of the launcher that started this process, by the variables it set. Slurm speaks either language.
MpiFamily started_by() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return MpiFamily::open_mpi;
  if (std::getenv("PMI_RANK") != nullptr && std::getenv("SLURM_JOB_ID") == nullptr) return MpiFamily::mpich;
  return MpiFamily::unknown;
}

std::string remedy_for(const MpiVersion& library) {
  return str("Put the launcher of ", library.text(), " first on the PATH, or name it (launch --mpirun ",
             apps::mpi_launcher_names(library.family).back(), "; ",
             apps::how_to_install_launcher(library.family),
             "), or build with the other MPI. Else every process takes itself for rank 0 of 1.");
}

// The errno of one child reading the memory of another with process_vm_readv, as ranks do; 0: it may.
int try_to_read_a_sibling() {
  static volatile int secret = 42;
  const pid_t read_one = fork();
  if (read_one == 0) {
    pause();
    _exit(0);
  }
  if (read_one < 0) return errno;
  const pid_t reader = fork();
  if (reader == 0) {
    int got = 0;
    const iovec mine{.iov_base = &got, .iov_len = sizeof got};
    const iovec its{.iov_base = const_cast<int*>(&secret), .iov_len = sizeof secret};
    const ssize_t count = process_vm_readv(read_one, &mine, 1, &its, 1, 0);
    _exit(count == sizeof got ? 0 : errno);
  }
  int status = 0;
  const bool waited = reader > 0 && waitpid(reader, &status, 0) == reader;
  kill(read_one, SIGKILL);
  waitpid(read_one, nullptr, 0);
  return waited && WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

}  // namespace

Finding check_mpi(bool& joinable) {
  joinable = dist::launch_environment().mpi;
  const auto library = dist::mpi_library();
  if (!library) {
    const std::string what = "not built in: ranks are threads of one process";
    const std::string remedy =
        "For ranks that are processes: apt-get install libopenmpi-dev openmpi-bin, and build again.";
    if (!joinable) return warning("mpi", what, remedy);
    joinable = false;
    return fault("mpi", what + ", but a launcher has started several processes", remedy);
  }
  const MpiVersion loaded = apps::parse_mpi_version(library->loaded);
  const MpiVersion compiled = apps::parse_mpi_version(library->compiled);
  if (compiled.family != loaded.family || compiled.major() != loaded.major()) {
    joinable = false;
    return fault("mpi", str("compiled for ", compiled.text(), ", but ", loaded.text(), " is loaded"),
                 "Look at LD_LIBRARY_PATH and LD_PRELOAD, or build again.");
  }
  if (const MpiFamily launcher = started_by(); launcher != MpiFamily::unknown && launcher != loaded.family) {
    joinable = false;
    return fault("mpi",
                 str("started by the launcher of ", MpiVersion{.family = launcher}.text(),
                     ", but this build uses ", loaded.text()),
                 remedy_for(loaded));
  }
  std::string launchers;
  bool other_major = false;
  for (const char* const name : {"mpirun", "mpiexec"}) {
    const auto launcher = apps::find_mpi_launcher(name);
    if (!launcher) continue;
    const std::string who = str(launcher->path, " is ", launcher->version.text());
    if (launcher->version.family != loaded.family)
      return fault("mpi", str(who, ", but this build uses ", loaded.text()), remedy_for(loaded));
    other_major = other_major || launcher->version.major() != loaded.major();
    launchers += ", " + who;
  }
  if (launchers.empty())
    return warning("mpi", str(loaded.text(), ", but neither mpirun nor mpiexec is on the PATH"),
                   str("Install one (", apps::how_to_install_launcher(loaded.family),
                       ") or add its folder to the PATH; ranks as threads (--ranks N) work without."));
  if (other_major)
    return warning("mpi", str(loaded.text(), launchers), "Use launcher and library of one release.");
  return ok("mpi", loaded.text() + launchers);
}

// Where it is not permitted, Open MPI prints an error for each message (open-mpi/ompi#4948) unless told not to try.
Finding check_single_copy() {
  constexpr const char* kVariable = "OMPI_MCA_btl_vader_single_copy_mechanism";
  const char* const value = std::getenv(kVariable);
  const int error = try_to_read_a_sibling();
  if (error == 0) return ok("single_copy", "processes may read each other's memory");
  const std::string what = str("processes may not read each other's memory (", std::strerror(error), ")");
  if (value == nullptr || std::string_view(value) == "none")
    return ok("single_copy", str(what, "; MPI is told so (", kVariable, "=none)"));
  return warning("single_copy",
                 str(what, ", but ", kVariable, "=", value, " makes Open MPI try and complain"),
                 str("Unset it or set it to none; or permit it (docker run --cap-add=SYS_PTRACE)."));
}

}  // namespace brigade::doctor
