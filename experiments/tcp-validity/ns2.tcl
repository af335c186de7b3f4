# One TCP connection over one bottleneck in ns-2:
#   ns ns2.tcl AGENT RATE_MBIT RTT_MS QUEUE LOSS SECONDS WARM_UP SEED [CURVE_FILE STEP]
# AGENT: sack1, newreno; sack1-highspeed (window option 8: RFC 3649) and sack1-scalable (the binomial
# option with a hundredth an acknowledgement and an eighth a loss); linux-reno and linux-cubic
# (TCP-Linux; for cubic the beta of RFC 9438 instead of the 0.8 of its day).
# QUEUE: packets, the one in transmission not counted. LOSS: probability of each packet, after
# the queue. Prints: goodput in bit/s after the warm-up, window cuts, timeouts, repeated packets.
# With CURVE_FILE, a line "time cwnd" each STEP seconds.

if {[llength $argv] < 8} { puts stderr "see the head of this file"; exit 2 }
lassign $argv agent rate rtt queue loss seconds warm seed curve step

set ns [new Simulator]
$defaultRNG seed $seed
Agent/TCP set window_ 1000000
Agent/TCP set windowInit_ 2
Agent/TCP set packetSize_ 1000
Agent/TCP set minrto_ 0.2
Agent/TCP set timestamps_ false

set a [$ns node]
set b [$ns node]
set delay [expr {$rtt / 2000.0}]
$ns duplex-link $a $b ${rate}Mb ${delay}s DropTail
# A limit of n in ns-2 lets n - 1 packets wait.
$ns queue-limit $a $b [expr {$queue + 1}]
$ns queue-limit $b $a 1000000
if {$loss > 0} {
    set em [new ErrorModel]
    $em unit pkt
    $em set rate_ $loss
    set rv [new RandomVariable/Uniform]
    $rv use-rng [new RNG]
    $em ranvar $rv
    $em drop-target [new Agent/Null]
    $ns link-lossmodel $em $a $b
}

switch -glob $agent {
    sack1* { set tcp [new Agent/TCP/Sack1]; set sink [new Agent/TCPSink/Sack1] }
    newreno { set tcp [new Agent/TCP/Newreno]; set sink [new Agent/TCPSink] }
    linux-* { set tcp [new Agent/TCP/Linux]; set sink [new Agent/TCPSink/Sack1] }
    default { puts stderr "no such agent"; exit 2 }
}
$ns attach-agent $a $tcp
$ns attach-agent $b $sink
$ns connect $tcp $sink
if {[string match linux-* $agent]} {
    $ns at 0 "$tcp select_ca [string range $agent 6 end]"
}
switch $agent {
    sack1-highspeed {
        $tcp set windowOption_ 8
        $tcp set low_window_ 38
        $tcp set high_window_ 83000
        $tcp set high_p_ 0.0000001
        $tcp set high_decrease_ 0.1
        $tcp set max_ssthresh_ 0
    }
    sack1-scalable {
        $tcp set windowOption_ 6
        $tcp set k_parameter_ -1.0
        $tcp set l_parameter_ 1.0
        $tcp set increase_num_ 0.01
        $tcp set decrease_num_ 0.875
    }
    linux-cubic { $ns at 0.001 "$tcp set_ca_param cubic beta 717" }
}
set ftp [new Application/FTP]
$ftp attach-agent $tcp
$ns at 0 "$ftp start"

set before {}
proc mark {} {
    global tcp before
    set before [list [$tcp set ack_] [$tcp set ncwndcuts_] [$tcp set nrexmit_] \
        [$tcp set nrexmitpack_]]
}
proc done {} {
    global tcp before seconds warm
    lassign $before ack cuts rto rep
    set packets [expr {[$tcp set ack_] - $ack}]
    set bps [expr {round($packets * 8000.0 / ($seconds - $warm))}]
    puts "$bps [expr {[$tcp set ncwndcuts_] - $cuts}]\
        [expr {[$tcp set nrexmit_] - $rto}] [expr {[$tcp set nrexmitpack_] - $rep}]"
    exit 0
}
proc sample {} {
    global ns tcp out step
    puts $out [format "%.3f %.3f" [$ns now] [$tcp set cwnd_]]
    $ns at [expr {[$ns now] + $step}] sample
}
if {$curve ne ""} {
    set out [open $curve w]
    $ns at 0 sample
}
$ns at $warm mark
$ns at $seconds done
$ns run
