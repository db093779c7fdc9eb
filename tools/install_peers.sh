#!/usr/bin/env bash
# Bring the programs that some tests compare with: install_peers.sh VENV. Best effort, never fails.
set -u
wanted=()
command -v kcat >/dev/null || wanted+=(kcat)
command -v strace >/dev/null || wanted+=(strace)
command -v mvn >/dev/null || wanted+=(maven)
[ -e /usr/include/librdkafka/rdkafka.h ] || wanted+=(librdkafka-dev)
[ ${#wanted[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "install: not here: ${wanted[*]}; the tests that use them will say so" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update >/dev/null 2>&1
for package in "${wanted[@]}"; do
    apt-get install -y --no-install-recommends "$package" >/dev/null 2>&1 ||
        echo "install: could not install $package; the tests that use it will say so" >&2
done
exit 0
