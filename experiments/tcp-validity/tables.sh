#!/bin/sh
# Writes the sweep of scenario.toml from cells.csv, and paper.csv from ns2.csv.
set -eu
cd "$(dirname "$0")"
sed '/^\[sweep\]/q' scenario.toml > scenario.toml.new
awk -F, '
    BEGIN {
        print "repeat = 3"
        print "\"title, link.wan.rate, link.wan.rtt, link.wan.queue, link.wan.loss, duration, warm_up," \
              " flow.tcp.cc, flow.tcp.recovery\" = ["
        cc["sack1"] = "reno"; cc["newreno"] = "reno"; cc["linux-reno"] = "reno"
        cc["linux-cubic"] = "cubic:no-hystart"
        cc["sack1-highspeed"] = "highspeed"; cc["sack1-scalable"] = "scalable"
    }
    NR > 1 {
        recovery = $2 == "newreno" ? "newreno" : $2 ~ /^linux/ ? "rack" : "sack"
        printf "    [\"%s\", \"%smbit\", \"%sms\", \"%s packets\", %s, \"%ss\", \"%ss\", \"%s\", \"%s\"],\n",
            $1, $3, $4, $5, $6, $7, $8, cc[$2], recovery
    }
    END { print "]" }' cells.csv >> scenario.toml.new
mv scenario.toml.new scenario.toml
awk -F, '
    NR == FNR { if (FNR > 1) { goodput[$1] = $2; version = $6 }; next }
    FNR == 1 { print "key,value,tolerance,source" }
    FNR > 1 && $1 in goodput { printf "%s,%.4f,%s,ns-2 %s\n", $1, goodput[$1] / 1e6, $10, version }
' ns2.csv cells.csv > paper.csv
