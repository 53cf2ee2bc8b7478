#include "comm/transport/ucx_library.h"

#include <ucs/debug/log_def.h>

#include <cstdarg>

#include "sched/base/check.h"
#include "sched/base/library.h"

namespace sinew::comm {

namespace {

struct Loaded {
  UcxCalls calls{};
  std::string missing;

  Loaded() {
    Library library("libucp.so.0");
    library.find("ucp_config_read", &calls.config_read);
    library.find("ucp_config_release", &calls.config_release);
    library.find("ucp_init_version", &calls.init_version);
    library.find("ucp_cleanup", &calls.cleanup);
    library.find("ucp_worker_create", &calls.worker_create);
    library.find("ucp_worker_destroy", &calls.worker_destroy);
    library.find("ucp_worker_progress", &calls.worker_progress);
    library.find("ucp_worker_get_address", &calls.worker_get_address);
    library.find("ucp_worker_release_address", &calls.worker_release_address);
    library.find("ucp_worker_set_am_recv_handler", &calls.worker_set_am_recv_handler);
    library.find("ucp_ep_create", &calls.ep_create);
    library.find("ucp_ep_close_nbx", &calls.ep_close_nbx);
    library.find("ucp_am_send_nbx", &calls.am_send_nbx);
    library.find("ucp_am_recv_data_nbx", &calls.am_recv_data_nbx);
    library.find("ucp_am_data_release", &calls.am_data_release);
    library.find("ucp_request_check_status", &calls.request_check_status);
    library.find("ucp_request_free", &calls.request_free);
    library.find("ucs_status_string", &calls.status_string);
    if (!library.missing().empty())
      missing = "ucx: " + library.missing() + " (apt-get install libucx0)";
  }
};

const Loaded& loaded() {
  static const Loaded once;
  return once;
}

}  // namespace

const std::string& ucx_library_missing() { return loaded().missing; }

namespace {

// Of libucs, on which libucp stands: a handler is asked for every line, the last one first, until
// one says that it is done with it.
using LineHandler = ucs_log_func_rc_t (*)(const char* file, unsigned line, const char* function,
                                          ucs_log_level_t level,
                                          const ucs_log_component_config_t* component,
                                          const char* format, va_list arguments);
struct Log {
  void (*push)(LineHandler handler) = nullptr;
  void (*pop)() = nullptr;
  bool found = false;

  Log() {
    Library library("libucs.so.0");
    library.find("ucs_log_push_handler", &push);
    library.find("ucs_log_pop_handler", &pop);
    found = library.missing().empty();
  }
};

const Log& log() {
  static const Log once;
  return once;
}

ucs_log_func_rc_t swallow(const char*, unsigned, const char*, ucs_log_level_t,
                          const ucs_log_component_config_t*, const char*, va_list) {
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

UcxQuiet::UcxQuiet() {
  if (log().found) log().push(swallow);
}

UcxQuiet::~UcxQuiet() {
  if (log().found) log().pop();
}

const UcxCalls& ucx() {
  CHECK(loaded().missing.empty());
  return loaded().calls;
}

}  // namespace sinew::comm
