#include "absl/strings/str_cat.h"
#include "bench/config.h"
#include "common/base/text.h"
#include "common/verbs/connect_flags.h"

namespace verbena::bench {

std::string HelpText() {
  constexpr char kBefore[] =
      R"(verbena-bench: measures a Verbena server with the YCSB core workloads.

  verbena-bench load --server=ADDR:PORT [flags]      stores the records
  verbena-bench run --server=ADDR:PORT [flags]       works on them and reports
  verbena-bench agent --listen=ADDR:PORT [flags]     does its share of a run with --agents
  verbena-bench compare [--server=ADDR:PORT] [flags] the same work against Redis and memcached

A first try, with a server on port 7400:
  verbena-bench load --server=127.0.0.1:7400 --records=1M
  verbena-bench run  --server=127.0.0.1:7400 --records=1M --workload=b --seconds=10

load and run must be given the same --records and --key_size. Load is always one insert of each
record; run chooses records at random. Every value carries a check of its contents and its key, and
every value that is read is verified.

What to do
  --workload=b         a: 50 % reads, 50 % updates; b: 95 % reads, 5 % updates; c: only reads;
                       d: 95 % reads of the newest, 5 % inserts; e (run): 95 % scans of 1 to 100
                       records, 5 % inserts; f: 50 % reads, 50 % read-modify-writes
  -P FILE              YCSB's properties from a file (as bench/workloads/workloada to workloadf);
                       may be given several times, later ones win
  -p name=value        one of YCSB's properties; wins over files. With -P or -p what is not given is
                       as YCSB has it (ten fields of 100 bytes, uniform); what flags say stays
  --records=100000     records in the store (1 to 10G; k, M and G are decimal)
  --distribution=      which records: zipfian (YCSB's scrambled one, the hottest key gets 3.8 %),
                       uniform, latest, hotspot, sequential, exponential, or zipf:THETA (exact; THETA
                       above 0, at most 100); none: latest for d, else zipfian
  --key_size=0         bytes of each key: 8 to 1024; 0: YCSB's own names, 14 to 23 bytes; or sizes as
                       in etc, udb, zippydb, up2x, kvcache, graph, assocs or cdn
  --value_size=100     bytes of each value (1B to 1GiB); or a distribution of sizes: uniform:MIN-MAX,
                       list:SIZE:WEIGHT,..., etc, udb, zippydb, up2x, kvcache, graph, assocs, cdn,
                       file:FILE (lines of a size and a count)
  --seed=1             of everything random; the same seed gives the same operations
  --trace=FILE         run: the requests of a cache trace instead, in Twitter's CSV form (timestamp,
                       key, key size, value size, client, operation, TTL); /dev/stdin for what zstd
                       -dc and the like write. What a read does not find is a miss, not an error
  --speed=0            so many times faster than its timestamps (0.001 to 1000000), as an open loop;
                       0: as fast as possible
  --strict             its first bad line ends the run, with status 2; else bad lines are told, with
                       number and reason, and passed over
  --fill_on_miss       its reads that find nothing are followed by a write of a value of that size

How much
  --seconds=10         how long to run (0.1 to 1000000); a trace without it: to its end
  --operations=0       how many operations; with --seconds too, whichever ends first
  --warmup_seconds=0   run this long before measuring, to fill caches

How hard (as a closed loop: an answer makes room for the next operation)
  --threads=1          client threads (1 to 1024)
  --connections=0      connections, a multiple of --threads; 0: one per thread
  --depth=16           operations in flight on each connection (1 to 1024); workload e does one at
                       a time, and this is how many READs of a scan are in flight
  --cache_bytes=64MiB  each connection's cache of the server's index; 0 turns it off
  --preload            fill that cache when connecting, before the time of the run begins
  --poll_us=100        microseconds that a client which waits polls before it sleeps (0 to 1000000);
                       0 where polling takes the processor from those that are waited for
  --timeout_seconds=5  for connecting, and again for each operation (0.001 to 3600): very large values
                       may need longer

Where
  --server=ADDR:PORT   the server
  --fabric=auto        auto, verbs (an RDMA adapter) or soft (the software device, same host)
  --server_pid=0       the server's process, for its CPU time; by default the server tells
)";
  constexpr char kAfter[] = R"(
Results
  Progress on standard error, the results at the end. In a closed loop latencies are service times,
  from submission to callback; with --rate response times too.
  Interrupted (Ctrl-C), it reports what there is, marked so.
  Errors are counted in both, and the first one is told.
  --json=FILE          the same as JSON; where there are no results {"error": ...} says why
  --report=FILE.html   run, compare: the same as one page with charts, for a browser; it needs no
                       network
  --max_errors=0       more failed operations than this make the exit status 1
  --baseline           run: afterwards measures, in alternating rounds in the same process, plain
                       RDMA READs and SEND ping-pongs without a store around them, and PUTs in the
                       storage without a network, and prints how Verbena relates to them. The server
                       must be on this host.
  --rounds=9           of --baseline (9 to 1000) and compare (1 to 1000)

compare
  Starts memcached and redis-server (or valkey-server) on loopback ports and Unix sockets, and a
  Verbena server unless --server is given; loads the same records and runs the same operations on
  each, in turns of --seconds (default 1) for --rounds, at --depth and at depth 1. Prints medians and
  ratios, and what each system costs for an operation.
  --systems=LIST       only these, with commas between: verbena, verbena-send (GETs sent to the
                       server), memcached-tcp, memcached-unix, redis-tcp, redis-unix, raw-read and
                       raw-send (the fabric with no store on it); default all. Only by name:
                       tcp-pingpong (TCP with no store behind it)
  --redis=redis-server  a program to start, or ADDR:PORT or unix:PATH (or both with a comma) of one
                       that runs, WHOSE RECORDS OF THE SAME NAMES ARE OVERWRITTEN; off: none
  --memcached=memcached  likewise
  --memcached_protocol=text  text or meta
  --scenario=storage4k  instead: 4 KiB random reads at fixed rates, which rise until each system has
                       had enough, with the server's processor load

Exit status: 0 all well; 1 wrong values, or more errors than --max_errors; 2 wrong usage, or a trace
that --strict stopped, cannot be read to its end or has no request; 3 no such host, no connection, or it was lost; 6 the results cannot be written (--json=FILE is tried before
the run begins); 130 interrupted.
What has been waited for longer than 2 seconds is told once on standard error, and until when.
Flags from a file: --flagfile=FILE.
)";
  return absl::StrCat(kBefore, ToAbsl(verbs::ConnectFlagsHelp()), ToAbsl(LoadOptionsHelp()),
                      kAfter);
}

}  // namespace verbena::bench
