#!/bin/sh
# Creates the user of the service. It does not start the service. After an
# upgrade it restarts a service that runs.
set -e

if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers larder.conf
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart larder.service
fi
