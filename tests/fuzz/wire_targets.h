// What the fuzzers call: each decodes bytes that a hostile peer might send, and checks that what
// was accepted encodes to the same bytes again. A broken promise ends the process (that is what
// fuzzers look for); errors of the decoders are fine.
//
// The same functions run in libFuzzer programs (option VERBENA_FUZZ) and in an ordinary test over
// the corpus and generated inputs. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace verbena::fuzz {

// The first byte chooses the structure: connect, accept or reject data.
void Handshake(std::span<const uint8_t> input);
void Request(std::span<const uint8_t> input);
void Response(std::span<const uint8_t> input);
// The structures that travel as values: Hello, Welcome, Location.
void Values(std::span<const uint8_t> input);
// The keys that answer a scan.
void ScanAnswer(std::span<const uint8_t> input);

}  // namespace verbena::fuzz
