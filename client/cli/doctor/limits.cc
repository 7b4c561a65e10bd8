// What devices and this process allow, against what a server (and a client) needs.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"
#include "client/cli/doctor/needs.h"
#include "common/base/sizes.h"

namespace verbena::cli::doctor {
namespace {

// Problems of one device: the worst status, and all texts.
struct Problems {
  Status status = Status::kOk;
  std::vector<std::string> findings;
  std::vector<std::string> remedies;

  void Add(Status how, std::string finding, std::string remedy) {
    status = std::max(status, how);
    findings.push_back(std::move(finding));
    if (!remedy.empty()) remedies.push_back(std::move(remedy));
  }
  bool Has(const std::string& remedy) const {
    return std::find(remedies.begin(), remedies.end(), remedy) != remedies.end();
  }
};

uint64_t Limit(int value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

void CheckSizes(const Options& options, const ibv_device_attr& attr, Problems* problems) {
  // 0 means that the driver does not say.
  if (options.memory > 0 && attr.max_mr_size != 0 && attr.max_mr_size < options.memory) {
    problems->Add(
        Status::kFail,
        absl::StrCat("max_mr_size is ", FormatSize(attr.max_mr_size), ", the region is to have ",
                     FormatSize(options.memory)),
        absl::StrCat("verbena-server --memory=", FormatSize(attr.max_mr_size), " or less"));
  }
}

void CheckQueues(const DeviceAnswers& answers, Problems* problems) {
  const ibv_device_attr& attr = answers.attributes;
  constexpr char kOthers[] =
      "end other programs that use the device (`rdma resource show` lists what they hold), or use "
      "another one";
  constexpr char kShrinks[] =
      "nothing needs to be set: the server takes less and says how much in its banner; several "
      "connections of a client make up for a smaller window";
  const uint64_t qps = Limit(attr.max_qp);
  if (qps <= kReservedQps) {
    problems->Add(Status::kFail, absl::StrCat("max_qp is ", qps, ": no room for connections"),
                  kOthers);
  } else if (qps < 128) {
    problems->Add(Status::kWarn,
                  absl::StrCat("max_qp is ", qps, ": the server admits at most ",
                               qps - kReservedQps, " connections"),
                  "use few connections, each with many operations in flight");
  }
  const int registrations = answers.stages_reads ? 4 : 3;
  if (attr.max_cq < 2 || attr.max_mr < registrations || attr.max_pd < 1) {
    problems->Add(
        Status::kFail,
        absl::StrCat("max_cq is ", attr.max_cq, ", max_mr ", attr.max_mr, ", max_pd ", attr.max_pd,
                     ": a server needs 2, ", registrations, " and 1 at least"),
        kOthers);
  }
  if (Limit(attr.max_qp_wr) < kSendDepth) {
    problems->Add(Status::kWarn,
                  absl::StrCat("max_qp_wr is ", attr.max_qp_wr, ", a connection of the usual ",
                               kWindow, " unanswered requests takes ", kSendDepth),
                  kShrinks);
  }
  if (Limit(attr.max_cqe) < uint64_t{2} * kServerReceives) {
    problems->Add(
        Status::kWarn,
        absl::StrCat("max_cqe is ", attr.max_cqe, ", less than the ", 2 * kServerReceives, " for ",
                     kServerReceives, " receives of a worker: fewer connections fit"),
        problems->Has(kShrinks) ? "" : kShrinks);
  }
}

void CheckReceiveQueues(const ibv_device_attr& attr, Problems* problems) {
  if (attr.max_srq <= 0) {
    problems->Add(
        Status::kWarn,
        "max_srq is 0: without shared receive queues every connection needs receive "
        "buffers of its own, so fewer of them fit",
        "verbena-server --srq_depth (buffers of a worker) or --workers gives room for more");
  } else if (Limit(attr.max_srq_wr) < kServerReceives) {
    problems->Add(Status::kWarn,
                  absl::StrCat("max_srq_wr is ", attr.max_srq_wr, ", the usual depth is ",
                               kServerReceives, ": fewer connections fit on a worker"),
                  "verbena-server --workers=N spreads them");
  }
}

void CheckReads(const ibv_device_attr& attr, Problems* problems) {
  const int depth = std::min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom);
  if (depth <= 0) {
    problems->Add(Status::kFail,
                  absl::StrCat("max_qp_rd_atom is ", attr.max_qp_rd_atom,
                               " and max_qp_init_rd_atom ", attr.max_qp_init_rd_atom,
                               ": the device does no READs, which every GET is made of"),
                  "use another device, or the software device on one host (--fabric=soft)");
  } else if (depth < static_cast<int>(kUsualReadDepth)) {
    problems->Add(Status::kWarn,
                  absl::StrCat("max_qp_rd_atom is ", depth,
                               ": a connection has at most that many "
                               "READs in flight, further GETs wait (",
                               kUsualReadDepth, " is usual)"),
                  "for more GETs at once use several connections; a firmware setting may raise it");
  }
}

std::string PagesWord(const std::string& setting) {
  // "always [madvise] never" -> "madvise"
  const size_t from = setting.find('[');
  const size_t to = setting.find(']');
  if (from == std::string::npos || to == std::string::npos || to < from) return setting;
  return setting.substr(from + 1, to - from - 1);
}

}  // namespace

void CheckDeviceLimits(const Context& context) {
  for (const auto& [name, answers] : context.answers) {
    const ibv_device_attr& attr = answers.attributes;
    Problems problems;
    CheckSizes(context.options, attr, &problems);
    CheckQueues(answers, &problems);
    CheckReceiveQueues(attr, &problems);
    CheckReads(attr, &problems);
    const std::vector<Figure> figures = {
        {"max_mr_size_bytes", static_cast<double>(attr.max_mr_size)},
        {"max_qp", attr.max_qp},
        {"max_qp_wr", attr.max_qp_wr},
        {"max_cqe", attr.max_cqe},
        {"max_srq", attr.max_srq},
        {"max_srq_wr", attr.max_srq_wr},
        {"max_qp_rd_atom", attr.max_qp_rd_atom},
        {"max_qp_init_rd_atom", attr.max_qp_init_rd_atom}};
    const std::string region = attr.max_mr_size == 0         ? "not told"
                               : attr.max_mr_size >> 60 != 0 ? "unlimited"
                                                             : FormatSize(attr.max_mr_size);
    context.Add(problems.status, "limits", name,
                problems.findings.empty()
                    ? absl::StrCat("max_mr_size ", region, ", max_qp ", attr.max_qp, ", max_qp_wr ",
                                   attr.max_qp_wr, ", max_cqe ", attr.max_cqe, ", max_srq ",
                                   attr.max_srq, ", max_qp_rd_atom ", attr.max_qp_rd_atom)
                    : absl::StrJoin(problems.findings, "; "),
                absl::StrJoin(problems.remedies, "; "), figures);
  }
}

void CheckHugePages(const Context& context) {
  const SystemView& system = context.system;
  const auto page = system.MemInfo("Hugepagesize");
  if (context.options.memory == 0 || page.value_or(0) == 0) return;
  const uint64_t need = AlignUp(context.options.memory, *page) / *page;
  const uint64_t free = system.MemInfo("HugePages_Free").value_or(0);
  const uint64_t reserved = system.MemInfo("HugePages_Rsvd").value_or(0);
  const uint64_t usable = free > reserved ? free - reserved : 0;
  const std::string transparent = PagesWord(
      system.Read("/sys/kernel/mm/transparent_hugepage/shmem_enabled").value_or("not available"));
  const std::vector<Figure> figures = {{"free_pages", static_cast<double>(usable)},
                                       {"needed_pages", static_cast<double>(need)},
                                       {"page_bytes", static_cast<double>(*page)}};
  const std::string finding =
      absl::StrCat(usable, " huge pages of ", FormatSize(*page), " are free, a region of ",
                   FormatSize(context.options.memory), " takes ", need,
                   "; transparent ones for shared memory: ", transparent);
  if (usable >= need) {
    context.Ok("huge_pages", "", finding, figures);
  } else if (transparent == "always" || transparent == "within_size" || transparent == "advise" ||
             transparent == "force") {
    context.Ok("huge_pages", "", finding + " (the server asks for them)", figures);
  } else if (context.options.memory > system.MemInfo("MemTotal").value_or(UINT64_MAX)) {
    context.Warn("huge_pages", "", finding, "none can help: see the check of memory", figures);
  } else {
    context.Warn("huge_pages", "",
                 finding + ": the region gets small pages, which cost speed and time at the start",
                 absl::StrCat("sysctl -w vm.nr_hugepages=",
                              system.MemInfo("HugePages_Total").value_or(0) + need - usable,
                              " (keep it in /etc/sysctl.d/), or echo advise > "
                              "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
                 figures);
  }
}

void CheckOpenFiles(const Context& context) {
  constexpr uint64_t kEnough = 512;  // connections
  const auto limit = context.system.ProcessLimit("Max open files");
  if (!limit.has_value() || context.options.memory == 0) return;
  // The server raises its limit to the hard one.
  if (limit->hard == UINT64_MAX) {
    context.Ok("open_files", "", "unlimited");
    return;
  }
  const uint64_t connections = limit->hard / kSoftConnectionFiles;
  const std::vector<Figure> figures = {{"limit", static_cast<double>(limit->soft)},
                                       {"hard_limit", static_cast<double>(limit->hard)}};
  const std::string finding = absl::StrCat(
      "a server may open ", limit->hard, " files (ulimit -Hn), room for ", connections,
      " connections over the software device, which take up to ", kSoftConnectionFiles, " each");
  if (connections < kEnough) {
    context.Warn(
        "open_files", "", finding,
        "raise the hard limit: `* hard nofile 65536` in /etc/security/limits.conf; systemd: "
        "LimitNOFILE=65536; containers: --ulimit nofile=65536",
        figures);
  } else {
    context.Ok("open_files", "", finding, figures);
  }
}

}  // namespace verbena::cli::doctor
