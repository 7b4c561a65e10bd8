#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "common/base/text.h"
#include "common/verbs/connect_flags.h"

namespace verbena::cli {

std::string HelpText() {
  constexpr char kBefore[] = R"(verbena-cli: looks into a Verbena server and changes what is there.

  verbena-cli --server=ADDR:PORT COMMAND [flags]

Commands
  get KEY          prints the value
  put KEY [VALUE]  stores VALUE, or standard input where VALUE is left out
  del KEY          removes the key
  take KEY         prints the value and removes the key, in one step
  add KEY NUMBER   adds to a number that is stored as text (an absent one is 0), prints the sum
  append KEY [VALUE]  puts VALUE, or standard input, behind what is there
  expire KEY DURATION  gives the key a time to live from now: 500ms, 30s, 15m, 2h, 7d (1ms to 100
                   years); prints set, or replaced where it had one
  persist KEY      takes the time to live away; prints removed, or none where it had none
  ttl KEY          prints how long the key stays still, as 29998ms; none: for ever
  scan [START]     the keys from START on (left out: from the first one), in the order of their bytes:
                   KEY, tab, VALUE on a line each
  info             what the server says of itself: items, memory, connections, fabric
  ping             a round trip to the server
  doctor           checks this machine (and with --server the way to a server) for RDMA, and says what
                   to do; has a --help and exit statuses of its own

A first try, with a server on port 7400
  verbena-cli --server=127.0.0.1:7400 put greeting 'hello, fabric'
  verbena-cli --server=127.0.0.1:7400 get greeting
  verbena-cli --server=127.0.0.1:7400 del greeting

Changes that look before they leap (each is one step for the server: nobody comes between)
  verbena-cli --server=127.0.0.1:7400 put lock "$HOSTNAME" --if_absent && echo mine
  verbena-cli --server=127.0.0.1:7400 add visits 1
  verbena-cli --server=127.0.0.1:7400 add -- stock -3
  verbena-cli --server=127.0.0.1:7400 --json get config       # prints its version as well
  verbena-cli --server=127.0.0.1:7400 put config new --if_version=1732960727000000001
  job=$(verbena-cli --server=127.0.0.1:7400 take job) && run "$job"

Keys that go by themselves
  verbena-cli --server=127.0.0.1:7400 put session/41 "$token" --ttl=30m
  verbena-cli --server=127.0.0.1:7400 expire session/41 30m   # it is in use: once more from now
  verbena-cli --server=127.0.0.1:7400 put lock "$HOSTNAME" --if_absent --ttl=10s && echo mine

Keys in order
  verbena-cli --server=127.0.0.1:7400 scan --prefix=session/ --keys_only --limit=0 | wc -l
  verbena-cli --server=127.0.0.1:7400 scan log/2024-11-30 --limit=20       # from there on
  verbena-cli --server=127.0.0.1:7400 scan "$last" --after --limit=20      # the next page
  verbena-cli --server=127.0.0.1:7400 --json scan --prefix=user/ | jq -r .key

In pipes (values are bytes, nothing is added or removed)
  tar c src | verbena-cli --server=127.0.0.1:7400 put backup/src
  verbena-cli --server=127.0.0.1:7400 get backup/src | tar t
  verbena-cli --server=127.0.0.1:7400 --json info | jq .memory.used_bytes
  if verbena-cli --server=127.0.0.1:7400 get color >/dev/null 2>&1; then echo there; fi

When something does not work
  verbena-cli doctor
  verbena-cli doctor --server=10.0.0.1:7400

get writes the value as it is; only on a terminal it adds the line's end that a value may lack, so that
the prompt stands on a line of its own. put without VALUE stores all of standard input, line ends
included (`printf %s text |` gives none). A key or value that begins with '-' goes behind ' -- ':
  verbena-cli --server=127.0.0.1:7400 put -- number -5

scan needs a line for each key, so it writes a backslash, tab, line feed and carriage return of keys
and values as \\ \t \n \r, and other control characters and bytes that are no UTF-8 as \xHH (the shell's
printf %b undoes it). It is no snapshot: each value was its key's at some time during the scan. No keys
in the range: no lines, and exit status 0.

Flags (in any place; all of them can stand in a file: --flagfile=FILE)
  --server=ADDR:PORT   the server, such as 127.0.0.1:7400, [::1]:7400 or host.example:7400
  --fabric=auto        verbs: an RDMA adapter; soft: the software device, for a server on this host;
                       auto: verbs if the route to the server has an RDMA device, else soft if the
                       server is on this host
  --timeout=5s         for connecting, and again for the operation (1ms to 1h)
  --if_absent          put: only if there is no such key
  --if_present         put, add, append: only if there is such a key
  --if_version=N       put, del, add, append: only if the key has the version N, which --json get
                       and changes print (jq before 1.7 rounds it)
  --ttl=DURATION       put: how long the key stays, 1ms to 100 years (36500d). Without it the key stays
                       for ever, also where it had a time; add and append leave the time as it is
  --prefix=P           scan: only keys that begin so
  --limit=100          scan: how many keys at most; 0: all
  --after              scan: begin behind START, with the next key
  --keys_only          scan: without the values, which are then not fetched
  --json               results and errors as one JSON object on standard output (scan: one a line); a
                       key or value that is not UTF-8 text comes as key_base64, value_base64
  --help, --version    this text; the version
)";
  constexpr char kAfter[] = R"(
Exit status (but of doctor)
  0  done
  1  there is no such key (get, del, take, expire, persist, ttl, and put, add, append under a
     condition that wants one)
  2  wrong usage: the command, a flag or its value
  3  no such host, no server there, it went away, or no answer in time (a change may have been
     applied then)
  4  refused by the server: key or value over its limits, no space left, too many connections, other
     versions; add: the value is not a number, or the sum does not fit 64 bits;
     scan: the server runs with --ordered_index=off
  5  a defect of Verbena: please report it
  6  standard input could not be read or standard output not be written (a closed pipe included)
  7  nothing was changed: the key is there (--if_absent) or has another version (--if_version)
Errors are told on standard error: what failed, the value that was wrong, and what to do. So is, once,
what has been waited for longer than 2 seconds, and until when.
)";
  return absl::StrCat(kBefore, "\nFlags for RDMA networks\n", ToAbsl(verbs::ConnectFlagsHelp()),
                      kAfter);
}

}  // namespace verbena::cli
