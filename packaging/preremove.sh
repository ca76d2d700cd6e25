#!/bin/sh
# Stops the service and the timers before its program is removed. The argument is
# "remove" for a deb and 0 for an rpm. An upgrade has another one.
set -e

case ${1:-} in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now larder.service larder-backup.timer larder-verify.timer
    fi
    ;;
esac
