#!/usr/bin/env bash
# backup.sh FOLDER: copy the database, then JARVIS_HOME, to a new folder below FOLDER, and delete the
# oldest beyond BACKUPS_KEPT (14). It may run while the server runs. How to restore:
# docs/how-to/keep-analyses.md. An artifact root is not included.
# Tested by the suite with SQLite; the line for PostgreSQL is that of the guide.
set -euo pipefail

: "${JARVIS_HOME:?names the folder to back up}"
backups=${1:?the folder for backups}
name=$(date -u +%Y-%m-%dT%H%M%SZ)
half="$backups/.half-$name"
umask 077
mkdir -p "$half"
trap 'rm -rf "$half"' EXIT

case "${JARVIS_DATABASE_URL:-sqlite}" in
postgresql*)
    pg_dump --format=custom --file="$half/jarvis.dump" "${JARVIS_DATABASE_URL/+psycopg/}"
    ;;
sqlite)
    if ! test -f "$JARVIS_HOME/jarvis.db"; then
        echo "backup.sh: there is no database in $JARVIS_HOME; name it in JARVIS_DATABASE_URL" >&2
        exit 1
    fi
    python3 - "$JARVIS_HOME/jarvis.db" "$half/jarvis.db" <<'PYTHON'
import sqlite3, sys

source, copy = map(sqlite3.connect, sys.argv[1:])
source.backup(copy)
PYTHON
    ;;
*)
    echo "backup.sh: back up the database of JARVIS_DATABASE_URL with its own tool" >&2
    exit 1
    ;;
esac

# Exit code 1: files changed during the copy, see the guide.
tar -C "$JARVIS_HOME" --exclude='.*.new-*' --exclude='.*.old-*' --exclude='.*.removed-*' \
    --exclude='./jarvis.db*' --exclude=./cache --exclude=./compiled --exclude=./exports \
    -czf "$half/home.tar.gz" . || test $? -eq 1

mv "$half" "$backups/$name"
find "$backups" -mindepth 1 -maxdepth 1 -type d -name '20*Z' | sort -r |
    tail -n "+$((${BACKUPS_KEPT:-14} + 1))" | xargs -r rm -rf --
echo "$backups/$name"
