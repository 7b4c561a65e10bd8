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
  info             what the server says of itself: items, memory, connections, fabric
  ping             a round trip to the server
  doctor           checks this machine (and with --server the way to a server) for RDMA, and says what
                   to do; has a --help and exit statuses of its own

A first try, with a server on port 7400
  verbena-cli --server=127.0.0.1:7400 put greeting 'hello, fabric'
  verbena-cli --server=127.0.0.1:7400 get greeting
  verbena-cli --server=127.0.0.1:7400 del greeting

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
  --json               results and errors as one JSON object on standard output; a value that is not
                       UTF-8 text comes as value_base64
  --help, --version    this text; the version
)";
  constexpr char kAfter[] = R"(
Exit status (but of doctor)
  0  done
  1  get, del: there is no such key
  2  wrong usage: the command, a flag or its value
  3  no server there, it went away, or no answer in time (a change may have been applied then)
  4  refused by the server: key or value over its limits, no space left, too many connections, other
     versions
  5  a defect of Verbena: please report it
  6  standard input could not be read or standard output not be written (a closed pipe included)
Errors are told on standard error: what failed, the value that was wrong, and what to do.
)";
  return absl::StrCat(kBefore, "\nFlags for RDMA networks\n", ToAbsl(verbs::ConnectFlagsHelp()),
                      kAfter);
}

}  // namespace verbena::cli
