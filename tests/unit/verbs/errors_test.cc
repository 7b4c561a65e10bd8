#include "common/verbs/errors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "common/verbs/rdma_core.h"

namespace verbena::verbs {
namespace {

bool Has(const absl::Status& status, const char* text) {
  return status.message().find(text) != absl::string_view::npos;
}

TEST(Errors, ThreeConventions) {
  errno = EPERM;  // must be ignored where the call succeeded or returned its errno
  EXPECT_TRUE(FromReturn(0, "ibv_modify_qp").ok());
  EXPECT_EQ(ErrnoOf(FromReturn(EINVAL, "ibv_modify_qp")), EINVAL);
  errno = ENODEV;
  EXPECT_EQ(ErrnoOf(FromMinusOne(-1, "rdma_listen")), ENODEV);
  errno = EPERM;
  EXPECT_EQ(ErrnoOf(FromMinusOne(-EADDRINUSE, "rdma_bind_addr")), EADDRINUSE);
  int object = 0;
  errno = EPERM;
  auto made = FromPointer(&object, "ibv_alloc_pd");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(*made, &object);
  errno = ENOMEM;
  int* const missing = nullptr;
  EXPECT_EQ(ErrnoOf(FromPointer(missing, "ibv_alloc_pd").status()), ENOMEM);
}

TEST(Errors, DetailRunsOnlyOnFailureAndCannotChangeTheErrno) {
  int runs = 0;
  const auto detail = [&] {
    ++runs;
    errno = 0;
    return std::string("17 entries");
  };
  EXPECT_TRUE(FromReturn(0, "ibv_create_cq", detail).ok());
  EXPECT_EQ(runs, 0);
  errno = EMFILE;
  const absl::Status status = FromMinusOne(-1, "ibv_create_cq", detail);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(ErrnoOf(status), EMFILE);
  EXPECT_TRUE(Has(status, "17 entries")) << status;
}

TEST(Errors, AFailureWithoutErrnoIsStillAFailure) {
  errno = 0;
  EXPECT_FALSE(FromMinusOne(-1, "rdma_connect").ok());
  errno = 0;
  EXPECT_FALSE(FromPointer(static_cast<int*>(nullptr), "ibv_alloc_pd").ok());
}

TEST(Errors, TextsNameCallValueErrnoAndRemedy) {
  const absl::Status memory = ErrnoStatus(ENOMEM, "ibv_reg_mr", "8GiB at 0x1000");
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"ibv_reg_mr", "8GiB at 0x1000", "Cannot allocate memory", "errno 12",
                           "ulimit -l", "LimitMEMLOCK", "memlock=-1"}) {
    EXPECT_TRUE(Has(memory, part)) << part << " is missing in: " << memory;
  }
  EXPECT_TRUE(Has(ErrnoStatus(EPERM, "ibv_create_cq", ""), "ulimit -l"));
  EXPECT_TRUE(Has(ErrnoStatus(ENOMEM, "ibv_create_qp", ""), "fewer connections"));
  EXPECT_TRUE(Has(ErrnoStatus(ENODEV, "rdma_create_event_channel", ""), "rdma_ucm"));
  EXPECT_TRUE(Has(ErrnoStatus(ENOENT, "rdma_create_event_channel", ""), "--fabric=soft"));
  EXPECT_TRUE(Has(ErrnoStatus(EMFILE, "rdma_create_event_channel", ""), "ulimit -n"));
  EXPECT_TRUE(Has(ErrnoStatus(EADDRINUSE, "rdma_bind_addr", "127.0.0.1:7000"), "another port"));
  EXPECT_TRUE(Has(ErrnoStatus(EADDRNOTAVAIL, "rdma_bind_addr", "9.9.9.9:7000"), "9.9.9.9:7000"));
  EXPECT_TRUE(Has(ErrnoStatus(EADDRNOTAVAIL, "rdma_bind_addr", ""), "not one of this machine's"));
}

TEST(Errors, Codes) {
  EXPECT_EQ(ErrnoCode(0), absl::StatusCode::kOk);
  EXPECT_EQ(ErrnoCode(EADDRINUSE), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrnoCode(EADDRNOTAVAIL), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrnoCode(ETIMEDOUT), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ErrnoCode(ECONNREFUSED), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrnoCode(ENODEV), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrnoCode(EOPNOTSUPP), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrnoCode(12345), absl::StatusCode::kInternal);
}

TEST(Errors, NoDeviceIsToldFromOtherFailures) {
  EXPECT_TRUE(IsNoDevice(ErrnoStatus(ENODEV, "rdma_create_event_channel", "")));
  EXPECT_TRUE(IsNoDevice(ErrnoStatus(ENOSYS, "ibv_get_device_list", "")));
  EXPECT_FALSE(IsNoDevice(ErrnoStatus(ENOMEM, "ibv_open_device", "")));
  EXPECT_FALSE(IsNoDevice(absl::NotFoundError("something else")));
  EXPECT_FALSE(IsNoDevice(absl::OkStatus()));
  EXPECT_EQ(ErrnoOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(ErrnoOf(absl::InternalError("x")), std::nullopt);
  const absl::Status refused = ErrnoStatus(ECONNREFUSED, "rdma_connect", "");
  EXPECT_EQ(ErrnoOf(refused), ECONNREFUSED);
  EXPECT_EQ(ErrnoOf(WithoutErrno(refused)), std::nullopt);
  EXPECT_EQ(WithoutErrno(refused).ToString().find("verbena/errno"), std::string::npos);
  EXPECT_EQ(WithoutErrno(refused).message(), refused.message());
}

TEST(Errors, EveryCompletionStatusHasItsOwnTextAndCode) {
  std::set<std::string> texts;
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_GENERAL_ERR; ++status) {
    const auto value = static_cast<ibv_wc_status>(status);
    const std::string text = WcStatusText(value);
    EXPECT_NE(text, "unknown completion status") << status;
    // The two EEC states share a text: reliable connections have neither.
    if (value != IBV_WC_INV_EEC_STATE_ERR) {
      EXPECT_TRUE(texts.insert(text).second) << text;
    }
    ibv_wc wc{};
    wc.status = value;
    wc.qp_num = 4711;
    wc.vendor_err = 13;
    const absl::Status error = WcError(wc, "READ of a bucket");
    EXPECT_EQ(error.ok(), status == IBV_WC_SUCCESS);
    EXPECT_EQ(error.code(), WcStatusCode(value));
    if (!error.ok()) {
      EXPECT_TRUE(Has(error, "READ of a bucket") && Has(error, "4711")) << error;
      EXPECT_TRUE(Has(error, text.c_str())) << error;
    }
  }
  // What says that the connection is gone, and what says that a program is wrong.
  for (const ibv_wc_status gone :
       {IBV_WC_WR_FLUSH_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_REM_ABORT_ERR, IBV_WC_REM_OP_ERR, IBV_WC_REM_ACCESS_ERR,
        IBV_WC_BAD_RESP_ERR, IBV_WC_FATAL_ERR, IBV_WC_GENERAL_ERR}) {
    EXPECT_EQ(WcStatusCode(gone), absl::StatusCode::kUnavailable) << gone;
  }
  for (const ibv_wc_status wrong : {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_ACCESS_ERR,
                                    IBV_WC_REM_INV_REQ_ERR, IBV_WC_MW_BIND_ERR}) {
    EXPECT_EQ(WcStatusCode(wrong), absl::StatusCode::kInternal) << wrong;
  }
  EXPECT_NE(std::string(WcStatusText(IBV_WC_RETRY_EXC_ERR)).find("gone"), std::string::npos);
  EXPECT_STREQ(WcStatusText(IBV_WC_TM_ERR), "unknown completion status");
}

TEST(Errors, ConnectionEvents) {
  for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++type) {
    const auto value = static_cast<rdma_cm_event_type>(type);
    EXPECT_STRNE(CmEventText(value), "unknown connection event") << type;
    EXPECT_EQ(CmEventError(value, 0, "x").code(), CmEventCode(value));
  }
  EXPECT_TRUE(CmEventError(RDMA_CM_EVENT_ESTABLISHED, 0, "x").ok());
  const absl::Status nobody =
      CmEventError(RDMA_CM_EVENT_REJECTED, kRejectedNoListener, "127.0.0.1:7000");
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Has(nobody, "127.0.0.1:7000") && Has(nobody, "nobody listens")) << nobody;
  const absl::Status refused = CmEventError(RDMA_CM_EVENT_REJECTED, kRejectedByConsumer, "a:1");
  EXPECT_FALSE(Has(refused, "nobody listens")) << refused;
  EXPECT_FALSE(Has(refused, "reason")) << refused;
  // iWARP's reasons are errnos.
  const absl::Status iwarp = CmEventError(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, "a:1");
  EXPECT_TRUE(Has(iwarp, "nobody listens")) << iwarp;
  const absl::Status reset = CmEventError(RDMA_CM_EVENT_REJECTED, -ECONNRESET, "a:1");
  EXPECT_TRUE(Has(reset, "Connection reset by peer (errno 104)")) << reset;
  const absl::Status stale = CmEventError(RDMA_CM_EVENT_REJECTED, kRejectedStaleConnection, "a:1");
  EXPECT_TRUE(Has(stale, "from an earlier connection (reason 10)")) << stale;
  for (int reason = 1; reason <= 33; ++reason) {
    if (reason == kRejectedByConsumer || reason == 11) continue;  // 11: other transports
    const absl::Status told = CmEventError(RDMA_CM_EVENT_REJECTED, reason, "a:1");
    EXPECT_FALSE(Has(told, "not known")) << told;
  }
  const absl::Status other = CmEventError(RDMA_CM_EVENT_REJECTED, 99, "a:1");
  EXPECT_TRUE(Has(other, "for a reason that is not known (reason 99)")) << other;
  const absl::Status route = CmEventError(RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, "a:1");
  EXPECT_EQ(ErrnoOf(route), ENODEV);
  EXPECT_TRUE(Has(route, "errno 19")) << route;
  const absl::Status silent = CmEventError(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "a:1");
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Has(silent, "4791")) << silent;
}

TEST(Errors, AsyncEventsHaveTexts) {
  for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_WQ_FATAL; ++type) {
    EXPECT_STRNE(AsyncEventText(static_cast<ibv_event_type>(type)), "unknown asynchronous event");
  }
}

TEST(RdmaCore, IsOneTableWithTheNameOfTheFabric) {
  EXPECT_STREQ(RdmaCoreVerbs().fabric(), "verbs");
  EXPECT_EQ(&RdmaCoreVerbs(), &RdmaCoreVerbs());
}

}  // namespace
}  // namespace verbena::verbs
