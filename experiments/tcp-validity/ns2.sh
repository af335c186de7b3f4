#!/bin/sh
# Runs every cell of cells.csv in ns-2 and writes ns2.csv. Needs ns2 (Debian: apt install ns2).
#   ./ns2.sh [PATTERN]      only the cells whose key matches; results are added to ns2.csv
set -eu
cd "$(dirname "$0")"
version=$(dpkg-query -W -f '${Version}' ns2 2>/dev/null || echo unknown)
[ -f ns2.csv ] || echo "key,goodput_bps,window_cuts,timeouts,repeated_packets,ns2" > ns2.csv
while IFS=, read -r key agent rate rtt queue loss seconds warm quick; do
    [ "$key" = key ] && continue
    case $key in *${1:-}*) ;; *) continue ;; esac
    result=$(ns ns2.tcl "$agent" "$rate" "$rtt" "$queue" "$loss" "$seconds" "$warm" 1 |
        grep -E '^[0-9]' | tr ' ' ,)
    grep -v "^$key," ns2.csv > ns2.csv.new || true
    echo "$key,$result,$version" >> ns2.csv.new
    mv ns2.csv.new ns2.csv
    echo "$key,$result"
done < cells.csv

# Window curves of a few cells: time and cwnd in packets.
while IFS=, read -r key agent rate rtt queue loss seconds warm quick; do
    case $key in
        sack1/10mbit/100ms/queue1 | newreno/10mbit/100ms/queue1 | linux-cubic/10mbit/100ms/queue1) ;;
        sack1-highspeed/100mbit/10ms/queue1 | sack1-scalable/100mbit/10ms/queue1) ;;
        *) continue ;;
    esac
    case $key in *${1:-}*) ;; *) continue ;; esac
    case $key in
        sack1-scalable*) step=0.005 ;;
        *100mbit*) step=0.02 ;;
        *) step=0.1 ;;
    esac
    end=$(awk "BEGIN { print $step * 1500 }")
    ns ns2.tcl "$agent" "$rate" "$rtt" "$queue" "$loss" "$end" 1 1 \
        "curves/$(echo "$key" | tr / -).txt" "$step" > /dev/null 2>&1
done < cells.csv
