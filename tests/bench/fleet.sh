#!/bin/sh
# The published guide's steps for several VMs, one after another: preference once, then per VM stop, start, wait, guide.sh.
# usage: fleet.sh VM…; environment: SSH_PORT, SSH_KEY, KIT, PROGRAM, MODEL, GUIDE
set -eu
key="com.apple.gpusw.ParavirtualizedGraphics ForceUnrestrictedDeviceFeatureLevel"
defaults write $key -bool true
for vm in "$@"; do
  lume shutdown "$vm" --password lume > /dev/null
  until lume get "$vm" --format json | grep -q '"status" *: *"stopped"'; do sleep 0.5; done
  lume run "$vm" --display none --detach > /dev/null
  until lume ssh "$vm" true > /dev/null 2>&1; do sleep 0.5; done
  "$GUIDE" "$vm" "$KIT" "$PROGRAM" "$MODEL"
done
