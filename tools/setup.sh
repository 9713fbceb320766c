#!/usr/bin/env bash
# What the Makefile needs from the machine: a Python environment in .venv, a Java for Spark, and servers for the tests.
#
#   tools/setup.sh venv                    make or repair .venv
#   tools/setup.sh with_java COMMAND...    run COMMAND with a JAVA_HOME that can start Spark
#   tools/setup.sh servers                 install the database servers that tests start, if that is possible here
#   tools/setup.sh lock [UV OPTION...]     write requirements.lock again from pyproject.toml
#
# .venv/.ready is written last, so a .venv without it was left half made and is built again from nothing.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
LOG=build/setup.log

say() { echo "set-up: $*" >&2; }

stop() {
    echo "set-up stopped: $*" >&2
    exit 1
}

# Runs a command with its output in the log; shows the end of the log only if the command fails.
quietly() {
    echo "+ $*" >>"$LOG"
    "$@" >>"$LOG" 2>&1 || {
        tail -n 40 "$LOG" >&2
        stop "this failed: $* (all of its output is in $LOG)"
    }
}

we_can_install_debian_packages() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

# Installs the first of the given packages that this Debian release has.
install_one_debian_package_of() {
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get -o DPkg::Lock::Timeout=300 update
    local package
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 && break
    done
    quietly apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$package"
}

# --- Python

venv_is_current() {
    [[ -e .venv/.ready && ! requirements.lock -nt .venv/.ready && ! pyproject.toml -nt .venv/.ready ]]
}

wait_for_other_set_ups() {
    command -v flock >/dev/null || return 0
    exec 9>build/setup.flock
    flock --nonblock 9 || { say "another set-up is running here; waiting for it"; flock 9; }
}

check_python_version() {
    command -v "$PYTHON" >/dev/null ||
        stop "there is no $PYTHON; install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "Python 3.11 or newer is needed and $PYTHON is $("$PYTHON" --version 2>&1); name another: make PYTHON=python3.12"
}

python_can_make_venvs() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

make_sure_python_can_make_venvs() {
    python_can_make_venvs && return
    local package
    package="$(basename "$PYTHON")-venv"
    we_can_install_debian_packages || stop "$PYTHON cannot make environments; install its venv module (Debian: apt-get install $package)"
    say "installing Debian's $package (under a minute)"
    install_one_debian_package_of "$package"
    python_can_make_venvs || stop "$PYTHON cannot make environments even with $package; name another Python: make PYTHON=/usr/bin/python3"
}

remove_a_half_made_venv() {
    [[ -e .venv && ! -e .venv/.ready ]] || return 0
    say "removing .venv: an earlier set-up did not finish"
    rm -rf .venv
}

install_the_locked_packages() {
    if [[ ! -e .venv ]]; then
        say "making .venv with $("$PYTHON" --version) (seconds)"
        quietly "$PYTHON" -m venv .venv
    fi
    rm -f .venv/.ready
    say "installing what requirements.lock names (1 to 5 minutes the first time: Spark alone is 500 MB on disk)"
    quietly .venv/bin/python -m pip install --disable-pip-version-check --require-hashes --requirement requirements.lock
    say "installing penstock itself, editable (seconds)"
    quietly .venv/bin/python -m pip install --disable-pip-version-check --no-deps --editable .
}

set_up_the_venv() {
    mkdir -p build
    wait_for_other_set_ups
    if venv_is_current; then return; fi
    : >"$LOG"
    check_python_version
    make_sure_python_can_make_venvs
    remove_a_half_made_venv
    install_the_locked_packages
    touch .venv/.ready
    say "done"
}

# --- Java

# Prints the home of a java command if it can start Spark: 17 or newer, with the vector module that Spark asks for.
home_of_a_good_java() {
    local settings version
    settings=$("$1" --add-modules=jdk.incubator.vector -XshowSettings:properties -version 2>&1) || return 1
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    [[ $version =~ ^[0-9]+$ ]] && ((version >= 17)) || return 1
    sed -n 's/^ *java\.home = //p' <<<"$settings"
}

# JAVA_HOME first, then the java on PATH, as Spark itself looks for it.
find_java() {
    { [[ -n ${JAVA_HOME:-} ]] && home_of_a_good_java "$JAVA_HOME/bin/java"; } ||
        { command -v java >/dev/null && home_of_a_good_java java; }
}

# Debian 12 has Java 17; releases after it have a newer one, under the name default-jre-headless.
install_java() {
    we_can_install_debian_packages ||
        stop "Spark needs Java 17 or newer and none was found; install it (Debian: apt-get install openjdk-17-jre-headless)"
    mkdir -p build
    say "installing Debian's Java runtime (1 to 2 minutes)"
    install_one_debian_package_of openjdk-17-jre-headless default-jre-headless
}

run_with_java() {
    local home
    home=$(find_java) || {
        install_java
        hash -r
        home=$(find_java) || stop "Java was installed but 'java' still does not start as 17 or newer; set JAVA_HOME to one that does"
    }
    JAVA_HOME=$home exec "$@"
}

# --- Servers that the tests start for themselves, in directories of their own

has_postgresql() { compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null; }
has_mariadb() { PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null; }

# Debian starts what it installs; here only the programs are wanted.
without_starting_services() {
    local policy=/usr/sbin/policy-rc.d
    if [[ -e $policy ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap "rm -f $policy" EXIT
    "$@"
    rm -f "$policy"
    trap - EXIT
}

install_a_server() {
    say "installing Debian's $1 for the tests, without starting it (under a minute)"
    without_starting_services install_one_debian_package_of "$1"
}

install_the_servers() {
    mkdir -p build
    if has_postgresql && has_mariadb; then return; fi
    if ! we_can_install_debian_packages; then
        say "PostgreSQL or MariaDB is not installed, so the tests that start one are skipped (Debian: apt-get install postgresql mariadb-server)"
        return
    fi
    has_postgresql || install_a_server postgresql
    has_mariadb || install_a_server mariadb-server
}

# --- The lock

write_the_lock() {
    mkdir -p build
    : >"$LOG"
    check_python_version
    make_sure_python_can_make_venvs
    say "fetching uv into build/uv (seconds)"
    quietly "$PYTHON" -m venv --clear build/uv
    quietly build/uv/bin/python -m pip install --disable-pip-version-check uv
    say "writing requirements.lock (seconds)"
    # The custom command keeps this machine's paths and options out of the header.
    quietly build/uv/bin/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-emit-index-url \
        --custom-compile-command "make lock" --output-file requirements.lock "$@"
}

case ${1:-} in
    venv) set_up_the_venv ;;
    with_java) run_with_java "${@:2}" ;;
    servers) install_the_servers ;;
    lock) write_the_lock "${@:2}" ;;
    *) stop "unknown step '${1:-}'; there are venv, with_java, servers and lock" ;;
esac
