// verbena-cli doctor: checks whether this machine, and a server, are fit for RDMA, and says what to
// do where they are not.
#pragma once

#include "client/cli/doctor/checks.h"
#include "client/cli/doctor/report.h"
#include "client/cli/doctor/system_view.h"
#include "common/verbs/verbs_api.h"

namespace verbena::cli::doctor {

// All checks, in their order. Takes as long as connecting and a few operations may
// (Options::connection has the limits). Opens devices, changes nothing.
Report Examine(const Options& options, const SystemView& system, verbs::VerbsApi& verbs,
               verbs::VerbsApi& soft);

// The text of `verbena-cli doctor --help`.
const char* HelpText();

}  // namespace verbena::cli::doctor
