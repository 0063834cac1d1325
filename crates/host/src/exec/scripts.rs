//! What is run inside: scripts for any POSIX shell, with the tools of coreutils or busybox.
//!
//! A script gets a random word first. What it has to say goes to its standard error, in lines that begin
//! with that word; so it is told apart from what the command that leads inside says there, and from what
//! the started process does. Names begin with `bub_` so that no variable of the environment is changed.

/// How every script talks to us: on descriptor 9. What else would be said there goes nowhere.
const SAY: &str = r#"
bub_word=$1; shift
exec 9>&2 2>/dev/null
bub_say() { printf '%s %s\n' "$bub_word" "$*" >&9; }
"#;

/// Finds what is left of a process: by its group or session, by a variable in its environment, or by its
/// parent. Needs `bub_mark`, `bub_leader` and `bub_since`, and sets `bub_found`.
const FAMILY: &str = r#"
bub_family() {
  bub_found=' ' bub_rest= bub_own=$bub_leader
  if [ ! -r /proc/self/stat ]; then
    bub_found=
    if [ -n "$bub_own" ] && kill -0 -- "-$bub_own"; then bub_found=" -$bub_own "; fi
    return 0
  fi
  # The number of a leader that has ended may be somebody else's by now, as may that of another namespace.
  if [ -n "$bub_own" ] && { read -r bub_line < "/proc/$bub_own/stat"; }; then
    set -- ${bub_line##*) }
    [ "${20}" = "$bub_since" ] || bub_own=
  fi
  if command -v grep >/dev/null; then
    bub_marked=" $(grep -lsF -e "$bub_mark=" /proc/[0-9]*/environ | while read -r bub_line; do printf '%s ' "$bub_line"; done)"
  else
    bub_marked=' '
    for bub_dir in /proc/[0-9]*; do
      case $(cat "$bub_dir/environ") in *"$bub_mark="*) bub_marked="$bub_marked$bub_dir/environ ";; esac
    done
  fi
  for bub_dir in /proc/[0-9]*; do
    { read -r bub_line < "$bub_dir/stat"; } || continue
    set -- ${bub_line##*) }
    case $1 in Z|X|x) continue;; esac
    bub_pid=${bub_dir#/proc/}
    if [ -n "$bub_own" ] && { [ "$bub_pid" = "$bub_own" ] || [ "$3" = "$bub_own" ] || [ "$4" = "$bub_own" ]; }; then
      bub_found="$bub_found$bub_pid "
    else
      case $bub_marked in
        *" $bub_dir/environ "*) bub_found="$bub_found$bub_pid ";;
        *) bub_rest="$bub_rest $bub_pid:$2";;
      esac
    fi
  done
  bub_more=y
  while [ -n "$bub_more" ]; do
    bub_more=
    for bub_line in $bub_rest; do
      case $bub_found in *" ${bub_line%%:*} "*) continue;; esac
      case $bub_found in *" ${bub_line#*:} "*) bub_found="$bub_found${bub_line%%:*} " bub_more=y;; esac
    done
  done
  [ "$bub_found" != ' ' ] || bub_found=
}
"#;

/// Starts a process in a session of its own, tells how it ends, and stays while anything of it is left.
///
/// The process is run in the foreground: what a shell runs in the background ignores interrupts, and so
/// would everything that it starts.
const START: &str = r#"
bub_mark=$1 bub_cwd=$2 bub_output=$3 bub_input=$4 bub_script=$5; shift 5
exec 7>&1 8>&9 >/dev/null
[ "$bub_output" = separate ] || exec 8>&7
if [ "$bub_input" = open ]; then exec 6<&0; else exec 6</dev/null; fi
exec </dev/null
trap : TERM HUP INT
if [ -n "$bub_cwd" ] && ! CDPATH= cd -P -- "$bub_cwd"; then
  if [ ! -e "$bub_cwd" ]; then bub_say refused cwd No such file or directory
  elif [ ! -d "$bub_cwd" ]; then bub_say refused cwd Not a directory
  else bub_say refused cwd Permission denied; fi
  exit 0
fi
bub_setsid=
if command -v setsid >/dev/null; then bub_setsid=setsid; fi
{
  trap : TERM HUP INT
  exec 5>&1
  # Redirected in a process of its own: a shell that reports a signal does it on its own standard error.
  (
    exec <&6 >&7 2>&8 6<&- 7>&- 8>&-
    exec $bub_setsid env -- "$@"
  )
  printf 'code %s\n' "$?" >&5
} | {
  trap : TERM HUP INT
  exec 6<&- 7>&- 8>&-
  bub_leader= bub_since= bub_code=127
  while read -r bub_what bub_one bub_two; do
    case $bub_what in
      leader) bub_leader=$bub_one bub_since=$bub_two;;
      code) bub_code=$bub_one;;
    esac
  done
  [ -z "$bub_script" ] || rm -f -- "$bub_script"
  bub_family
  if [ -n "$bub_found" ]; then bub_say exit "$bub_code" others; else bub_say exit "$bub_code" none; fi
  while [ -n "$bub_found" ]; do
    sleep 0.2 || sleep 1 || break
    bub_family
  done
}
"#;

/// Becomes the process: checks that it can be started, says so, and gives way to it.
pub(super) const BECOME: &str = r#"
bub_word=$1 bub_kind=$2; shift 2
bub_begin() {
  read -r bub_line 2>/dev/null < /proc/$$/stat
  set -- ${bub_line##*) }
  printf 'leader %s %s\n' $$ "${20}" >&5
  printf '%s started %s %s\n' "$bub_word" $$ "${20:--}" >&9
}
bub_refuse() { printf '%s refused program %s\n' "$bub_word" "$1" >&9; exit 127; }
if [ "$bub_kind" = shell ]; then
  if command -v bash >/dev/null 2>&1; then set -- bash "$@"; else set -- sh "$@"; fi
fi
case $1 in
  */*)
    [ -e "$1" ] || bub_refuse 'No such file or directory'
    { [ ! -d "$1" ] && [ -x "$1" ]; } || bub_refuse 'Permission denied';;
  *) command -v -- "$1" >/dev/null 2>&1 || bub_refuse 'No such file or directory';;
esac
bub_begin
exec "$@" 5>&- 9>&-
"#;

/// Signals what is left of a process, and says how many that were. A kill goes on until nothing is left.
const SIGNAL: &str = r#"
bub_mark=$1 bub_leader=$2 bub_since=$3 bub_signal=$4
exec >/dev/null </dev/null
bub_rounds=0 bub_count=0
while :; do
  bub_family
  [ -n "$bub_found" ] || break
  for bub_pid in $bub_found; do bub_count=$((bub_count + 1)); done
  kill -s "$bub_signal" -- $bub_found
  bub_rounds=$((bub_rounds + 1))
  if [ "$bub_signal" != KILL ] || [ "$bub_rounds" -ge 50 ]; then break; fi
  sleep 0.02 || sleep 1 || break
done
bub_say signalled "$bub_count"
"#;

/// Says where processes start and what the home folder is.
const PROBE: &str = r#"
printf '%s\n%s\n' "$(pwd -P)" "$HOME"
bub_say done
"#;

/// Reads a regular file to standard output, after its type and size.
const READ: &str = r#"
bub_path=$1
if ! bub_stat=$(LC_ALL=C stat -L -c '%f %s' -- "$bub_path" 2>&1); then
  bub_say refused "${bub_stat##*: }"; exit 0
fi
bub_say found "$bub_stat"
[ $((0x${bub_stat%% *} & 0xf000)) -eq 32768 ] || exit 0
if ! bub_error=$({ : < "$bub_path"; } 2>&1); then
  bub_say refused "${bub_error##*: }"; exit 0
fi
bub_say open
cat < "$bub_path"
bub_say end "$?"
"#;

/// Replaces a file by standard input, which has so many bytes.
const WRITE: &str = r#"
bub_path=$1 bub_size=$2
export LC_ALL=C
bub_refuse() { bub_say refused "${1##*: }"; exit 0; }
bub_mode=
if bub_stat=$(stat -L -c '%f %a %u:%g' -- "$bub_path" 2>&1); then
  bub_say found "$bub_stat"
  [ $((0x${bub_stat%% *} & 0xf000)) -eq 32768 ] || exit 0
  [ -w "$bub_path" ] || bub_refuse 'Permission denied'
  bub_stat=${bub_stat#* }
  bub_mode=${bub_stat% *} bub_owner=${bub_stat#* }
else
  case $bub_stat in *': No such file or directory') ;; *) bub_refuse "$bub_stat";; esac
fi
bub_follow() { readlink -f -- "$bub_path" && printf x; }
bub_target=$(bub_follow || { readlink -m -- "$bub_path" && printf x; } || {
  mkdir -p -- "${bub_path%/*}/" && bub_follow; })
bub_target=${bub_target%?x}
[ -n "$bub_target" ] || bub_target=$bub_path
bub_folder=${bub_target%/*}/
bub_error=$(mkdir -p -- "$bub_folder" 2>&1) || bub_refuse "$bub_error"
bub_temporary=$(mktemp "$bub_folder.bub-XXXXXXXXXXXX" 2>&1) || bub_refuse "$bub_temporary"
trap 'rm -f -- "$bub_temporary"' EXIT
trap 'exit 1' TERM HUP INT PIPE
bub_say send
bub_error=$(cat 2>&1 > "$bub_temporary") || bub_refuse "$bub_error"
if [ "$(wc -c < "$bub_temporary")" -ne "$bub_size" ]; then bub_refuse 'the content did not arrive whole'; fi
if [ -n "$bub_mode" ]; then
  if ! chown "$bub_owner" "$bub_temporary"; then
    chgrp "${bub_owner#*:}" "$bub_temporary"
    # Set-user-id and set-group-id must not pass to another owner.
    bub_mode=$(printf '%o' $((0$bub_mode & 01777)))
  fi
else
  bub_mode=$(printf '%o' $((0666 & ~$(umask))))
fi
bub_error=$(chmod "$bub_mode" "$bub_temporary" 2>&1) || bub_refuse "$bub_error"
sync "$bub_temporary"
bub_error=$(mv -f -- "$bub_temporary" "$bub_target" 2>&1) || bub_refuse "$bub_error"
sync "$bub_folder"
bub_say done
"#;

/// Says where a path leads.
const FOLLOW: &str = r#"
readlink -f -- "$1" || readlink -m -- "$1" || printf '%s\n' "$1"
bub_say done
"#;

/// Puts standard input, which has so many bytes, into a file for one process.
const KEEP: &str = r#"
export LC_ALL=C
bub_file=$(mktemp "${TMPDIR:-/tmp}/bub-script-XXXXXXXXXXXX" 2>&1) || { bub_say refused "${bub_file##*: }"; exit 0; }
trap 'rm -f -- "$bub_file"' EXIT
trap 'exit 1' TERM HUP INT PIPE
bub_error=$(cat 2>&1 > "$bub_file") || { bub_say refused "${bub_error##*: }"; exit 0; }
[ "$(wc -c < "$bub_file")" -eq "$1" ] || { bub_say refused 'the script did not arrive whole'; exit 0; }
trap - EXIT
printf '%s\n' "$bub_file"
bub_say done
"#;

/// One of the scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Script {
    Start,
    Signal,
    Probe,
    Read,
    Write,
    Follow,
    Keep,
}

impl Script {
    /// Its text. It takes the random word first, then its own arguments.
    pub(super) fn text(self) -> String {
        let (family, script) = match self {
            Self::Start => (FAMILY, START),
            Self::Signal => (FAMILY, SIGNAL),
            Self::Probe => ("", PROBE),
            Self::Read => ("", READ),
            Self::Write => ("", WRITE),
            Self::Follow => ("", FOLLOW),
            Self::Keep => ("", KEEP),
        };
        format!("{SAY}{family}{script}")
    }
}
