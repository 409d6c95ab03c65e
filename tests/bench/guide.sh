#!/bin/sh
# The published guide's steps for one VM whose host preference is set already: no more round trips than the guide asks for.
# usage: guide.sh VM KIT_FOLDER PROGRAM MODEL; environment: SSH_PORT, SSH_KEY. The comparison of tests/bench/unlock.
set -eu
vm=$1 kit=$2 program=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export LUME_LOG_LEVEL=error
address=$(lume get "$vm" --format json | sed -n 's/.*"ipAddress" *: *"\([0-9.]*\)".*/\1/p' | head -n 1)
copy() { scp -q -p -F /dev/null -i "$SSH_KEY" -P "$SSH_PORT" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"; }
guest() { lume ssh "$vm" "$@"; }
[ "$(defaults read com.apple.gpusw.ParavirtualizedGraphics ForceUnrestrictedDeviceFeatureLevel)" = 1 ]

# Library, probe and workload, with checksums compared on both sides.
home=$(guest 'printf "%s" "$HOME"')
to=$home/.local/share/lume/metal-capabilities
guest "mkdir -p $to ~/Library/LaunchAgents ~/Library/Logs"
copy "$kit/liblumelift-metal.dylib" "$kit/lumelift-probe" "$program" "$model" "lume@$address:$to/"
names="liblumelift-metal.dylib lumelift-probe ${program##*/} ${model##*/}"
here=$(shasum -a 256 "$kit/liblumelift-metal.dylib" "$kit/lumelift-probe" "$program" "$model" | cut -d ' ' -f 1)
there=$(guest "cd $to && shasum -a 256 $names" | cut -d ' ' -f 1)
[ "$here" = "$there" ]

# The probe, stock and with the library. Its status says what it found.
guest "$to/lumelift-probe" > "$work/stock" || true
guest "DYLD_INSERT_LIBRARIES=$to/liblumelift-metal.dylib LUME_METAL_APPLE_FAMILY_MAX=1009 LUME_METAL_MAX_THREADGROUP_MEMORY=65536 $to/lumelift-probe --ceiling 1009" \
  > "$work/unlocked" || true
grep -q '"1009": *false' "$work/stock"
grep -q '"1009": *true' "$work/unlocked"
grep -q '"5001": *false' "$work/unlocked"

# The workload as a LaunchAgent.
cat > "$work/guide.server.plist" <<PLIST
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>Label</key><string>guide.server</string>
<key>ProgramArguments</key><array><string>$to/${program##*/}</string><string>--model</string><string>${model##*/}</string></array>
<key>EnvironmentVariables</key><dict>
<key>DYLD_INSERT_LIBRARIES</key><string>$to/liblumelift-metal.dylib</string>
<key>LUME_METAL_APPLE_FAMILY_MAX</key><string>1009</string>
<key>LUME_METAL_MAX_THREADGROUP_MEMORY</key><string>65536</string>
</dict>
<key>WorkingDirectory</key><string>$to</string>
<key>RunAtLoad</key><true/>
<key>StandardOutPath</key><string>$home/Library/Logs/guide.out.log</string>
<key>StandardErrorPath</key><string>$home/Library/Logs/guide.err.log</string>
</dict></plist>
PLIST
copy "$work/guide.server.plist" "lume@$address:$home/Library/LaunchAgents/"
plist=$home/Library/LaunchAgents/guide.server.plist
guest "plutil -lint $plist" > "$work/lint"
uid=$(guest id -u)
guest "launchctl bootstrap gui/$uid $plist"
guest "launchctl kickstart -k gui/$uid/guide.server"
guest "launchctl print gui/$uid/guide.server" > "$work/job"
grep -q 'state = running' "$work/job"
guest "tail -n 20 ~/Library/Logs/guide.out.log ~/Library/Logs/guide.err.log" > "$work/logs"
