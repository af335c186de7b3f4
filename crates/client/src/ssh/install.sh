# Starts the program with the digest that the other end names, from the cache of this account. If it
# is not there, it asks for it, checks it, and puts it there. It removes what it created before it
# reports a failure.
set -f
# Only this script makes private files. The program gets the umask of the account.
u=$(umask)
umask 077
LC_ALL=C; export LC_ALL
t=; w=
c() { [ -z "$t" ] || rm -rf "$t"; t=; }
f() { c; echo; echo PACKTRAIN-BOOTSTRAP-FAILED $1; exit 72; }
# The shell handles signals only after it has cleaned up. The programs that it starts have the
# default handlers.
trap : 1 2 13 15
read -r d m || exit 72
b=${XDG_CACHE_HOME:-$HOME/.cache}/packtrain
usable() { [ -x "$1" ] && [ "$(wc -c <"$1")" -eq "$m" ] && "$1" --version >/dev/null 2>&1 </dev/null; }
# What belongs to another user is not run.
if [ -O "$b" ] && [ -O "$b/$d" ] && usable "$b/$d/packtrain"; then touch "$b/$d" 2>/dev/null; umask "$u"; exec "$b/$d/packtrain" ARGUMENTS; fi
# Names of unfinished copies hold the machine (by its boot), the namespace of process numbers, and the
# process. Only in the same namespace does a process number say whether the process still runs: of
# others, which share this directory from containers or other machines, copies are left for a day.
k=$(cut -c1-8 /proc/sys/kernel/random/boot_id 2>/dev/null)-$(readlink /proc/self/ns/pid 2>/dev/null | tr -dc 0-9)
sweep() {
  set +f
  case $k in ?*-?*) for o in "$1/$2$k"-*; do q=${o##*-}; kill -0 "${q%%.*}" 2>/dev/null || { [ -O "$o" ] && [ ! -L "$o" ] && rm -rf "$o"; }; done;; esac
  set -f
  find "$1/." ! -name . -prune -name "$2*" -user "$(id -u)" -mtime +0 -exec rm -rf {} + 2>/dev/null
}
place() {
  if ! e=$(mkdir -p "$1" 2>&1); then w="$w$e; "; return 1; fi
  if [ "$2" = .new- ] && [ ! -O "$1" ]; then w="$w$1 belongs to another user; "; return 1; fi
  sweep "$1" "$2"
  if ! t=$(mktemp -d "$1/$2$k-$$.XXXXXX" 2>&1); then w="$w$t; "; t=; return 1; fi
  if ! e=$( { echo "#!/bin/sh" >"$t/x" && chmod 700 "$t/x"; } 2>&1 ); then w="$w$e; "; c; return 1; fi
  if ! "$t/x" >/dev/null 2>&1; then w="${w}noexec: programs may not run in $1; "; c; return 1; fi
  rm -f "$t/x"
}
if place "$b" .new-; then r=cache; elif place "${TMPDIR:-/tmp}" packtrain-new-; then r=once; else f "$w"; fi
echo
echo "PACKTRAIN-BOOTSTRAP-SEND $r $w"
read -r n z || f "nothing was sent"
p=$t/packtrain
if [ "$z" = gzip ]; then e=$( { head -c "$n" | gzip -dc >"$p"; } 2>&1 ); else e=$( { head -c "$n" >"$p"; } 2>&1 ); fi || f "$e"
[ "$(wc -c <"$p")" -eq "$m" ] || f "the program did not arrive whole"
if command -v sha256sum >/dev/null 2>&1; then e=$(sha256sum <"$p"); [ "${e%% *}" = "$d" ] || f "the program arrived damaged"; fi
e=$( { chmod 700 "$p" && "$p" --version; } 2>&1 </dev/null ) || f "$e"
if [ "$r" = once ]; then umask "$u"; "$p" ARGUMENTS; s=$?; c; exit $s; fi
e=$( { mkdir -p "$b/$d" && mv -f "$p" "$b/$d/packtrain"; } 2>&1 ) || f "$e"
c
find "$b/." ! -name . -prune -name "[0-9a-f]*" ! -name "$d" -mtime +30 -exec rm -rf {} + 2>/dev/null
umask "$u"
exec "$b/$d/packtrain" ARGUMENTS
