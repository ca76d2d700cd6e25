#!/bin/sh
# Creates the user of the service, and its folder for backups. It does not start
# the service or a timer. After an upgrade it restarts a service that runs.
set -e

if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers larder.conf
fi
if command -v systemd-tmpfiles >/dev/null; then
  systemd-tmpfiles --create larder.conf
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart larder.service
fi
