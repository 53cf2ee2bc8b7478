// The functions of UCX that the wire calls, taken from libucp when a wire is first asked for. UCX
// hooks the memory calls of its process as soon as it is loaded, which is nothing to those who do
// not use it.
//
// Threads: any.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace sinew::comm {

struct UcxCalls {
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_am_send_nbx) am_send_nbx;
  decltype(&ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&ucp_am_data_release) am_data_release;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

// Why UCX cannot be used, in one line; empty: it can. The first call loads it.
[[nodiscard]] const std::string& ucx_library_missing();
// Only after ucx_library_missing() was empty.
[[nodiscard]] const UcxCalls& ucx();

// As long as one lives, UCX prints nothing in this process: for what may fail in the usual course.
// Where UCX offers no way to be quiet, it prints.
class UcxQuiet {
 public:
  UcxQuiet();
  ~UcxQuiet();
  UcxQuiet(const UcxQuiet&) = delete;
  UcxQuiet& operator=(const UcxQuiet&) = delete;
};

}  // namespace sinew::comm
