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
  --json               results and errors as one JSON object on standard output; a value that is not
                       UTF-8 text comes as value_base64
  --help, --version    this text; the version
)";
  constexpr char kAfter[] = R"(
Exit status (but of doctor)
  0  done
  1  there is no such key (get, del, take, and put, add, append under a condition that wants one)
  2  wrong usage: the command, a flag or its value
  3  no server there, it went away, or no answer in time (a change may have been applied then)
  4  refused by the server: key or value over its limits, no space left, too many connections, other
     versions; add: the value is not a number, or the sum does not fit 64 bits
  5  a defect of Verbena: please report it
  6  standard input could not be read or standard output not be written (a closed pipe included)
  7  nothing was changed: the key is there (--if_absent) or has another version (--if_version)
Errors are told on standard error: what failed, the value that was wrong, and what to do.
)";
  return absl::StrCat(kBefore, "\nFlags for RDMA networks\n", ToAbsl(verbs::ConnectFlagsHelp()),
                      kAfter);
}

}  // namespace verbena::cli
