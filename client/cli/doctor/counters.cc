// Counters of ports that tell of losses, time-outs, refusals and congestion since the driver was
// loaded.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"

namespace verbena::cli::doctor {
namespace {

enum class Kind { kLoss, kTimeout, kNotReady, kRefused, kLink, kCongestion };

struct Counter {
  const char* name;
  Kind kind;
  const char* meaning;
};

// Several drivers' names. What counts ordinary traffic, or leaves no conclusion, is not here.
constexpr Counter kCounters[] = {
    // mlx5
    {"out_of_sequence", Kind::kLoss, "packets came out of order: some before them were lost"},
    {"packet_seq_err", Kind::kLoss, "the peer missed packets (NAK for a sequence error)"},
    {"implied_nak_seq_err", Kind::kLoss, "answers of the peer were lost"},
    {"duplicate_request", Kind::kLoss, "requests came twice, since answers were lost or late"},
    {"rx_icrc_encapsulated", Kind::kLoss, "packets arrived damaged"},
    {"roce_slow_restart", Kind::kLoss, "senders started again slowly after losses"},
    {"local_ack_timeout_err", Kind::kTimeout, "no acknowledgement came in time"},
    {"rnr_nak_retry_err", Kind::kNotReady, "the peer was never ready to receive: retries ran out"},
    {"out_of_buffer", Kind::kNotReady, "messages found no receive buffer here"},
    {"req_remote_access_errors", Kind::kRefused, "peers refused accesses"},
    {"resp_remote_access_errors", Kind::kRefused, "accesses of peers were refused"},
    {"req_remote_invalid_request", Kind::kRefused, "peers refused requests as not valid"},
    {"np_cnp_sent", Kind::kCongestion, "notices of congestion sent"},
    {"np_ecn_marked_roce_packets", Kind::kCongestion, "packets that switches had marked"},
    {"rp_cnp_handled", Kind::kCongestion, "notices of congestion obeyed"},
    // Soft-RoCE
    {"rcvd_seq_err", Kind::kLoss, "the peer missed packets (NAK for a sequence error)"},
    {"out_of_seq_request", Kind::kLoss, "requests came out of order: some before them were lost"},
    {"retry_exceeded_err", Kind::kTimeout, "no acknowledgement came after all retries"},
    {"retry_rnr_exceeded_err", Kind::kNotReady,
     "the peer was never ready to receive: retries ran out"},
    {"send_rnr_err", Kind::kNotReady, "messages found no receive buffer here"},
    {"rcvd_rnr_err", Kind::kNotReady, "messages found no receive buffer at the peer"},
    {"send_err", Kind::kLoss, "packets could not be given to the network interface"},
    // bnxt_re
    {"seq_err_naks_rcvd", Kind::kLoss, "the peer missed packets (NAK for a sequence error)"},
    {"oos_drop_count", Kind::kLoss, "packets out of order were dropped"},
    {"max_retry_exceeded", Kind::kTimeout, "no acknowledgement came after all retries"},
    {"to_retransmits", Kind::kTimeout, "no acknowledgement came in time"},
    {"rnr_naks_rcvd", Kind::kNotReady, "messages found no receive buffer at the peer"},
    {"rx_cnp_pkts", Kind::kCongestion, "notices of congestion received"},
    {"tx_cnp_pkts", Kind::kCongestion, "notices of congestion sent"},
    {"rx_ecn_marked_pkts", Kind::kCongestion, "packets that switches had marked"},
    // irdma
    {"tcpRetransSegs", Kind::kLoss, "TCP segments were sent again"},
    {"cnpSent", Kind::kCongestion, "notices of congestion sent"},
    {"cnpHandled", Kind::kCongestion, "notices of congestion obeyed"},
    {"RxECNMrkd", Kind::kCongestion, "packets that switches had marked"},
    // Any port
    {"link_downed", Kind::kLink, "times that the link went down"},
    {"symbol_error", Kind::kLink, "errors of the line"},
    {"link_error_recovery", Kind::kLink, "times that the link trained again"},
    {"local_link_integrity_errors", Kind::kLink, "errors of the line over the limit"},
    {"port_rcv_errors", Kind::kLink, "packets received with errors"},
    {"port_xmit_discards", Kind::kLoss, "packets dropped at the sender, since the way was blocked"},
};

const char* Remedy(Kind kind) {
  switch (kind) {
    case Kind::kLoss:
      return "losses: check PFC and ECN here and on the switches, and the MTU all the way";
    case Kind::kTimeout:
      return "time-outs: a peer or the network was gone, or slower than --ack_timeout allows";
    case Kind::kNotReady:
      return "not ready: a program posts too few receives; Verbena's credits prevent it, so look "
             "at "
             "others (`rdma resource show qp`)";
    case Kind::kRefused:
      return "refusals: a program used a key that was withdrawn; clients of a restarted server do "
             "once";
    case Kind::kLink:
      return "link: check cable and transceiver";
    case Kind::kCongestion:
      break;
  }
  return "";
}

}  // namespace

void CheckCounters(const Context& context) {
  for (const RdmaDevice& device : context.devices) {
    for (const RdmaPort& port : device.ports) {
      std::vector<std::string> errors;
      std::vector<std::string> notices;
      std::vector<std::string> remedies;
      std::vector<Figure> figures;
      size_t read = 0;
      for (const Counter& counter : kCounters) {
        // hw_counters are the driver's own, counters the ones that InfiniBand defines.
        auto value = context.system.ReadNumber(port.path + "/hw_counters/" + counter.name);
        if (!value.has_value()) {
          value = context.system.ReadNumber(port.path + "/counters/" + counter.name);
        }
        if (!value.has_value()) continue;
        ++read;
        if (*value == 0) continue;
        figures.emplace_back(counter.name, static_cast<double>(*value));
        const std::string text =
            absl::StrCat(counter.name, " ", *value, " (", counter.meaning, ")");
        if (counter.kind == Kind::kCongestion) {
          notices.push_back(text);
          continue;
        }
        errors.push_back(text);
        const std::string remedy = Remedy(counter.kind);
        if (std::find(remedies.begin(), remedies.end(), remedy) == remedies.end()) {
          remedies.push_back(remedy);
        }
      }
      const std::string subject = PortName(device, port);
      if (!notices.empty()) {
        context.Ok("cnp", subject,
                   "congestion control has worked: " + absl::StrJoin(notices, ", "));
      }
      if (!errors.empty()) {
        context.Warn("counters", subject,
                     "since the driver was loaded: " + absl::StrJoin(errors, ", "),
                     absl::StrCat(absl::StrJoin(remedies, "; "),
                                  "; run this again to see whether they still grow"),
                     figures);
      } else if (read > 0) {
        context.Ok("counters", subject, absl::StrCat("all ", read, " counters of errors are 0"));
      }
    }
  }
}

}  // namespace verbena::cli::doctor
