// The functions of libibverbs that the wire calls, taken from the library when a wire is first
// asked for, and what its objects need when they go. Posting and polling are inline functions of
// its header and need no library.
//
// Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

namespace sinew::comm {

struct VerbsCalls {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  decltype(&ibv_query_device) query_device;
  // Fills the attributes up to those that the library's first version had, which are all that are
  // used.
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
  decltype(&_ibv_query_gid_ex) query_gid_ex;
  decltype(&ibv_alloc_pd) alloc_pd;
  decltype(&ibv_dealloc_pd) dealloc_pd;
  decltype(&ibv_create_cq) create_cq;
  decltype(&ibv_destroy_cq) destroy_cq;
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* data, std::size_t size_bytes, int access);
  decltype(&ibv_dereg_mr) dereg_mr;
  decltype(&ibv_create_srq) create_srq;
  decltype(&ibv_destroy_srq) destroy_srq;
  decltype(&ibv_create_qp) create_qp;
  decltype(&ibv_modify_qp) modify_qp;
  decltype(&ibv_destroy_qp) destroy_qp;
  decltype(&ibv_get_async_event) get_async_event;
  decltype(&ibv_ack_async_event) ack_async_event;
  decltype(&ibv_event_type_str) event_type_str;
  decltype(&ibv_wc_status_str) wc_status_str;
};

// Why libibverbs cannot be used, in one line; empty: it can. The first call loads it.
[[nodiscard]] const std::string& verbs_library_missing();
// Only after verbs_library_missing() was empty.
[[nodiscard]] const VerbsCalls& verbs();

struct VerbsDelete {
  void operator()(ibv_context* context) const { verbs().close_device(context); }
  void operator()(ibv_pd* domain) const { verbs().dealloc_pd(domain); }
  void operator()(ibv_cq* queue) const { verbs().destroy_cq(queue); }
  void operator()(ibv_mr* region) const { verbs().dereg_mr(region); }
  void operator()(ibv_srq* queue) const { verbs().destroy_srq(queue); }
  void operator()(ibv_qp* pair) const { verbs().destroy_qp(pair); }
};
using VerbsContext = std::unique_ptr<ibv_context, VerbsDelete>;

}  // namespace sinew::comm
