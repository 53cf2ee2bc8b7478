// A kernel that touches memory which is not there fails its launch, as on a device, instead of
// ending the program.
#include <csignal>
#include <mutex>

#include "kernels/device/twin/recording.h"
#include "kernels/device/twin/state.h"

namespace sinew::twin {

namespace {

struct sigaction previous_segv;
struct sigaction previous_bus;

// Runs on the fiber's own stack and never returns to the faulting access: fail switches away.
void on_fault(int signal, siginfo_t* info, void*) {
  if (current != nullptr) {
    launch_of(self()).illegal_access = true;
    // The race detector watches every handler of a signal, also where it looked away before.
    self().watched = true;
    fail("access to memory at %p that does not exist", info->si_addr);
  }
  if (touched_in_recording(info->si_addr)) return;
  // Not a kernel's: whoever was responsible before sees the fault when the access is tried again.
  sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
}

}  // namespace

void watch_for_illegal_accesses() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
  });
}

}  // namespace sinew::twin
