// SPDX-License-Identifier: MIT
// apps/launch/hosts.h - which of a job's hosts still answer, before it is started again. Read before: command.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace brigade::launch {

struct LivingHosts {
  std::string hosts;              ///< As --hosts takes them.
  int ranks = 0;                  ///< That they have room for.
  std::vector<std::string> lost;  ///< The others' names.
};

/// `hosts` as in --hosts: "a:2,b". Each name is asked once. Throws Error for what is no such list.
LivingHosts living_hosts(const std::string& hosts, const std::function<bool(const std::string&)>& answers);

/// Whether `true` can be run on the host in the way the launcher starts its daemons: by ssh, or Open MPI's
/// plm_rsh_agent ($OMPI_MCA_plm_rsh_agent). This host answers always. Waits some seconds at most.
bool host_answers(const std::string& host);

}  // namespace brigade::launch
