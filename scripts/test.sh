#!/bin/sh
# test.sh [CTEST_OPTION...]
#
# All tests, from a fresh checkout on Debian 12 or Ubuntu 22.04 and later: installs what is missing (apt, as root or
# through sudo), fetches both real models into models/ and NVRTC into .venv/ (where the machine has none), builds with
# sanitizers (build-asan/) and runs all tests but those of the real models there, builds as for use (build-test/) and
# runs every test. Exit status 0: all passed.
# Options go to the last ctest, for instance -R golden or -LE real.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
me="test"
. "$top/scripts/lib.sh"

case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
esac

log=$(mktemp "${TMPDIR:-/tmp}/quern-XXXXXX") || die "cannot write in ${TMPDIR:-/tmp}"
apt_log=$log
need_build_tools
has_header cmocka.h || need libcmocka-dev
command -v g++ >/dev/null || need g++
command -v pkg-config >/dev/null || need pkg-config
need_pip
install_packages
rm -f "$apt_log"

"$top/scripts/fetch-models.sh" all "$top/models" || die "the models could not be fetched"
"$top/scripts/fetch-nvrtc.sh" || die "NVRTC, which compiles the kernels in the tests, could not be fetched"

werror=OFF # a compiler not tried yet may warn of more
[ -z "${CI:-}" ] || werror=ON

rc=0
build build-asan -DQUERN_SANITIZE=ON -DQUERN_STATIC_DEPS=ON -DQUERN_TESTS=ON -DQUERN_WERROR=$werror
ctest --test-dir "$top/build-asan" --no-tests=error -LE '^(real|style)$' -j "$(n_jobs)" --output-on-failure </dev/null || rc=1

build build-test -DQUERN_TESTS=ON -DQUERN_WERROR=$werror
ctest --test-dir "$top/build-test" --no-tests=error -j "$(n_jobs)" --output-on-failure "$@" </dev/null || rc=1

[ $rc = 0 ] || say "tests failed"
exit $rc
