#!/bin/sh
# Writes the sweep of scenario.toml from cells.csv, and paper.csv from kernel.csv.
set -eu
cd "$(dirname "$0")"
sed '/^\[sweep\]/q' scenario.toml > scenario.toml.new
awk -F, '
    BEGIN {
        print "\"title, flow.tcp.cc, link.wan.rate, link.wan.rtt, link.wan.queue, link.wan.loss, duration," \
              " warm_up\" = ["
    }
    NR > 1 {
        printf "    [\"%s\", \"%s\", \"%smbit\", \"%sms\", \"%s packets\", %s, \"%ss\", \"%ss\"],\n",
            $1, $2, $3, $4, $5, $6, $7, $8
    }
    END { print "]" }' cells.csv >> scenario.toml.new
mv scenario.toml.new scenario.toml
awk -F, '
    NR == FNR { if (FNR > 1) { goodput[$1] = $2; source[$1] = "Linux " $12 " on " $13 }; next }
    FNR == 1 { print "key,value,tolerance,source" }
    FNR > 1 && $1 in goodput { printf "%s,%.4f,5%%,%s\n", $1, goodput[$1] / 1e6, source[$1] }
' kernel.csv cells.csv > paper.csv
