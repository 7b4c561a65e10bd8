#!/usr/bin/env bash
# Checks that need no build: clang-format, shellcheck, and which folder includes which.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"
failed=0
complain() {
  printf 'check_source: %s\n' "$1" >&2
  failed=1
}

mapfile -t sources < <(find common server client bench tests -name '*.cc' -o -name '*.h' -o -name '*.c' | sort)
clang-format --dry-run -Werror "${sources[@]}" || complain 'run clang-format -i on the files above'

mapfile -t shell < <(find scripts bench tests .ci -name '*.sh' -o -path .ci/run | sort)
shellcheck -x "${shell[@]}" || complain 'shellcheck found the above'

# forbid FOLDER PATTERN WHY: no file below FOLDER may include what matches PATTERN.
forbid() {
  local hits
  hits=$(grep -rnE "^#include [<\"]($2)" "$1" --include='*.h' --include='*.cc' || true)
  [ -z "$hits" ] || complain "$1 must not include $2 ($3):
$hits"
}
forbid common 'server/|client/|verbena/|bench/' 'dependencies run one way'
forbid common/base 'common/(verbs|softverbs|layout|wire)/' 'base depends on nothing'
forbid common/layout 'common/(verbs|softverbs|wire)/|infiniband/|rdma/' 'the layout knows no verbs'
forbid common/wire 'common/(verbs|softverbs)/|infiniband/|rdma/' 'messages know no verbs'
forbid common/verbs 'common/softverbs/' 'softverbs depends on verbs, not the other way'
forbid server/storage 'server/net|common/(verbs|softverbs|wire)/|infiniband/|rdma/' 'storage knows no network'
forbid server/net 'server/storage' 'net knows no storage'
forbid server 'client/|verbena/' 'the server does not use the client'
forbid client 'server/' 'the client does not use the server'
forbid client/include 'common/|absl/(strings|types|log)|spdlog|infiniband|rdma' 'the public API stands alone'

[ $failed -eq 0 ] && say 'source checks passed'
exit $failed
