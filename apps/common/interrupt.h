// SPDX-License-Identifier: MIT
// apps/common/interrupt.h - SIGINT and SIGTERM end a run after a whole step, on all ranks, with all its files.
#pragma once

namespace brigade::apps {

/// From now on the first SIGINT or SIGTERM is only noted; the program looks at interrupt_signal() between steps. One
/// that comes more than a second later, or 30 seconds without an end, end the process with 128 + signal at once: a
/// rank may wait in vain for another. (Sooner it is the same wish: launcher and terminal both pass Ctrl-C on.) A
/// signal that is ignored from the beginning, as under nohup, stays so.
void catch_interrupts();

/// 0, SIGINT or SIGTERM.
int interrupt_signal();

}  // namespace brigade::apps
