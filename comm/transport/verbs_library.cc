#include "comm/transport/verbs_library.h"

#include "sched/base/check.h"
#include "sched/base/library.h"

namespace sinew::comm {

namespace {

struct Loaded {
  VerbsCalls calls{};
  std::string missing;

  Loaded() {
    Library library("libibverbs.so.1");
    library.find("ibv_get_device_list", &calls.get_device_list);
    library.find("ibv_free_device_list", &calls.free_device_list);
    library.find("ibv_get_device_name", &calls.get_device_name);
    library.find("ibv_open_device", &calls.open_device);
    library.find("ibv_close_device", &calls.close_device);
    library.find("ibv_query_device", &calls.query_device);
    library.find("ibv_query_port", &calls.query_port);
    library.find("_ibv_query_gid_ex", &calls.query_gid_ex);
    library.find("ibv_alloc_pd", &calls.alloc_pd);
    library.find("ibv_dealloc_pd", &calls.dealloc_pd);
    library.find("ibv_create_cq", &calls.create_cq);
    library.find("ibv_destroy_cq", &calls.destroy_cq);
    library.find("ibv_reg_mr", &calls.reg_mr);
    library.find("ibv_dereg_mr", &calls.dereg_mr);
    library.find("ibv_create_srq", &calls.create_srq);
    library.find("ibv_destroy_srq", &calls.destroy_srq);
    library.find("ibv_create_qp", &calls.create_qp);
    library.find("ibv_modify_qp", &calls.modify_qp);
    library.find("ibv_destroy_qp", &calls.destroy_qp);
    library.find("ibv_get_async_event", &calls.get_async_event);
    library.find("ibv_ack_async_event", &calls.ack_async_event);
    library.find("ibv_event_type_str", &calls.event_type_str);
    library.find("ibv_wc_status_str", &calls.wc_status_str);
    if (!library.missing().empty())
      missing = "verbs: " + library.missing() + " (apt-get install libibverbs1 ibverbs-providers)";
  }
};

const Loaded& loaded() {
  static const Loaded once;
  return once;
}

}  // namespace

const std::string& verbs_library_missing() { return loaded().missing; }

const VerbsCalls& verbs() {
  CHECK(loaded().missing.empty());
  return loaded().calls;
}

}  // namespace sinew::comm
