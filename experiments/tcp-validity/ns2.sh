#!/bin/sh
# Runs the cells of cells.csv in ns-2 and writes ns2.csv and curves/. Needs ns2 (Debian: apt install
# ns2) and about a quarter of an hour.
#   ./ns2.sh [PATTERN]      only the cells whose key contains it
# With random loss the numbers are those of seed 1; SEEDS="1 2 3" takes the mean, as was done for
# HighSpeed and Scalable at 1e-4.
set -eu
cd "$(dirname "$0")"
version=$(dpkg-query -W -f '${Version}' ns2 2>/dev/null || echo unknown)

cell() {
    seeds=1
    [ "$loss" = 0 ] || seeds=${SEEDS:-1}
    result=$(for seed in $seeds; do
        ns ns2.tcl "$agent" "$rate" "$rtt" "$queue" "$loss" "$seconds" "$warm" "$seed"
    done | awk '/^[0-9]/ { n++; for (i = 1; i <= 4; i++) sum[i] += $i }
        END { printf "%.0f,%.0f,%.0f,%.0f", sum[1] / n, sum[2] / n, sum[3] / n, sum[4] / n }')
    { grep -v "^$key," ns2.csv || true; echo "$key,$result,$version"; } > ns2.csv.new
    mv ns2.csv.new ns2.csv
    echo "$key,$result"
}

# Time and cwnd in packets, 1,500 times.
curve() {
    case $key in
        sack1-scalable/100mbit/10ms/queue1) step=0.005 ;;
        sack1-highspeed/100mbit/10ms/queue1) step=0.02 ;;
        sack1/10mbit/100ms/queue1 | newreno/10mbit/100ms/queue1) step=0.1 ;;
        linux-cubic/10mbit/100ms/queue1) step=0.1 ;;
        *) return 0 ;;
    esac
    end=$(awk "BEGIN { print $step * 1500 }")
    ns ns2.tcl "$agent" "$rate" "$rtt" "$queue" "$loss" "$end" 1 1 \
        "curves/$(echo "$key" | tr / -).txt" "$step" > /dev/null 2>&1
}

[ -f ns2.csv ] || echo "key,goodput_bps,window_cuts,timeouts,repeated_packets,ns2" > ns2.csv
while IFS=, read -r key agent rate rtt queue loss seconds warm rest; do
    case $key in
        key) ;;
        *"${1:-}"*) cell; curve ;;
    esac
done < cells.csv
