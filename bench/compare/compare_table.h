// A comparison as text for people.
#pragma once

#include <string>

#include "bench/compare/comparison.h"
#include "bench/config.h"

namespace verbena::bench {

// Everything: throughput and latency, ratios, what each system costs for an operation, notes.
std::string CompareTable(const Config& config, const ComparisonResult& result);

// The part that tells what RDMA is for: per operation, each system's processor time on both sides,
// context switches, system calls, copies and bytes.
std::string CostTable(const ComparisonResult& result);

// What a lone read costs over TCP beside Verbena's, in a sentence; empty unless both were measured.
std::string Verdict(const ComparisonResult& result);

}  // namespace verbena::bench
