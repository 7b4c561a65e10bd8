// YCSB's core properties: what they mean for a run.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "bench/config.h"
#include "bench/workload/properties.h"

namespace verbena::bench {

// All that there are, in the order of the alphabet.
const std::vector<std::string_view>& CorePropertyNames();

// Makes `config` what the properties ask for, those that are not given as YCSB's core workload has
// them by default. Without any it changes nothing. What a flag of the same meaning has set stays:
// `given` tells whether the user gave that flag. `named_workload`: config.workload is one that the
// user has named, whose mix and distribution hold where no property says something else.
// InvalidArgument names the property, where it stands, its value and what is allowed.
absl::Status ApplyProperties(const Properties& properties,
                             const std::function<bool(const char* flag)>& given,
                             bool named_workload, Config* config);

}  // namespace verbena::bench
