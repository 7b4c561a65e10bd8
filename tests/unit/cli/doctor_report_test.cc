// The report as text and JSON, and what the doctor sees of the real machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_split.h"
#include "client/cli/doctor/print.h"
#include "client/cli/doctor/report.h"
#include "client/cli/doctor/system_view.h"
#include "tests/unit/cli/made_up_machine.h"

namespace verbena::cli::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Report SomeReport() {
  Report report;
  report.Add({.status = Status::kOk, .id = "devices", .finding = "two of them"});
  report.Add({.status = Status::kWarn,
              .id = "mtu",
              .subject = "mlx5_0/1",
              .finding = "too small by a number of bytes that takes more than a line of sixty "
                         "columns to tell",
              .remedy = "ip link set ens1 mtu 4200",
              .figures = {{"active_mtu_bytes", 1024}, {"median_us", 1.5}}});
  return report;
}

TEST(DoctorReport, ExitStatus) {
  Report report;
  EXPECT_EQ(report.ExitStatus(), 0);
  report.Add({.status = Status::kOk, .id = "a"});
  EXPECT_EQ(report.ExitStatus(), 0);
  report.Add({.status = Status::kFail, .id = "b"});
  EXPECT_EQ(report.ExitStatus(), 2);
  report.Add({.status = Status::kWarn, .id = "c"});
  EXPECT_EQ(report.ExitStatus(), 2);
  EXPECT_EQ(SomeReport().ExitStatus(), 1);
}

TEST(DoctorReport, TextIsAlignedAndWrapped) {
  const std::string text = ReportText(SomeReport(), {.width = 60, .colour = false});
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 60U);
  EXPECT_THAT(text, HasSubstr("OK    devices       two of them\n"));
  EXPECT_THAT(text, HasSubstr("WARN  mtu mlx5_0/1  too small"));
  EXPECT_THAT(text, HasSubstr("\n                    -> ip link set ens1 mtu 4200\n"));
  EXPECT_TRUE(text.ends_with("\n\n2 checks: 1 OK, 1 warning, 0 failures\n")) << text;
}

TEST(DoctorReport, LongTitlesDoNotPushTheTextAside) {
  Report report;
  report.Add({.status = Status::kOk, .id = std::string(50, 'x'), .finding = "fine"});
  EXPECT_THAT(ReportText(report, {.width = 60, .colour = false}), HasSubstr("x\n"));
}

TEST(DoctorReport, Colours) {
  const std::string text = ReportText(SomeReport(), {.width = 100, .colour = true});
  EXPECT_THAT(text, HasSubstr("\033[32mOK\033[0m    devices"));
  EXPECT_THAT(text, HasSubstr("\033[33mWARN\033[0m  mtu"));
}

TEST(DoctorReport, Json) {
  const auto json = nlohmann::json::parse(ReportJson(SomeReport()));
  ASSERT_EQ(json.at("checks").size(), 2U);
  const auto& first = json.at("checks").at(0);
  EXPECT_EQ(first.at("status"), "OK");
  EXPECT_FALSE(first.contains("subject") || first.contains("remedy") || first.contains("figures"));
  const auto& second = json.at("checks").at(1);
  EXPECT_EQ(second.at("id"), "mtu");
  EXPECT_EQ(second.at("subject"), "mlx5_0/1");
  EXPECT_EQ(second.at("remedy"), "ip link set ens1 mtu 4200");
  EXPECT_TRUE(second.at("figures").at("active_mtu_bytes").is_number_integer());
  EXPECT_EQ(second.at("figures").at("median_us"), 1.5);
  EXPECT_EQ(json.at("counts").at("warn"), 1);
  EXPECT_EQ(json.at("exit_status"), 1);
}

TEST(DoctorReport, JsonOfBytesThatAreNoText) {
  Report report;
  report.Add({.status = Status::kOk, .id = "a", .finding = "\xff"});
  const auto json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json.at("checks").at(0).at("finding"), "\\xff");
}

TEST(DoctorSystemView, Files) {
  MadeUpMachine machine;
  const SystemView& system = machine.system();
  machine.File("/a/b", "text \n\n");
  machine.File("/a/n", "0x11\n");
  machine.File("/a/m", "4: ACTIVE\n");
  machine.Link("/a/l", "../../drivers/mlx5_core");
  EXPECT_EQ(system.Read("/a/b"), "text");
  EXPECT_EQ(system.Read("/a"), std::nullopt);
  EXPECT_EQ(system.Read("/a/none"), std::nullopt);
  EXPECT_EQ(system.ReadNumber("/a/n"), 17U);
  EXPECT_EQ(system.ReadNumber("/a/m"), std::nullopt);
  EXPECT_EQ(system.LinkName("/a/l"), "mlx5_core");
  EXPECT_EQ(system.LinkName("/a/b"), "");
  EXPECT_THAT(system.List("/a"), testing::ElementsAre("b", "l", "m", "n"));
  EXPECT_THAT(system.List("/none"), testing::IsEmpty());
  EXPECT_TRUE(system.Exists("/a/b"));
  EXPECT_EQ(system.MemInfo("Hugepagesize"), uint64_t{2048} * 1024);
  EXPECT_EQ(system.MemInfo("HugePages_Free"), 1000U);
  const auto locked = system.ProcessLimit("Max locked memory");
  ASSERT_TRUE(locked.has_value());
  EXPECT_EQ(locked->soft, UINT64_MAX);
  machine.File("/proc/self/limits", "Max open files            1024 65536 files\n");
  const auto files = system.ProcessLimit("Max open files");
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->soft, 1024U);
  EXPECT_EQ(files->hard, 65536U);
  EXPECT_EQ(system.ProcessLimit("Max locked memory"), std::nullopt);
}

TEST(DoctorSystemView, TheRealMachine) {
  const SystemView system;
  EXPECT_TRUE(system.ProcessLimit("Max open files").has_value());
  EXPECT_GT(system.MemInfo("MemTotal").value_or(0), 0U);
  EXPECT_FALSE(system.Addresses().empty());
  // A file that can be opened, but fails to be read (nothing is mapped at address 0).
  EXPECT_EQ(system.Read("/proc/self/mem"), std::nullopt);
  EXPECT_EQ(system.DeviceFile("/dev/null"), Access::kUsable);
  EXPECT_EQ(system.DeviceFile("/dev/infiniband/none"), Access::kMissing);
  EXPECT_EQ(system.RunTool({"echo", "a", "b"}), "a b\n");
  EXPECT_EQ(system.RunTool({"false"}), std::nullopt);
  EXPECT_EQ(system.RunTool({"no-such-program"}), std::nullopt);
}

}  // namespace
}  // namespace verbena::cli::doctor
