# Ten on/off sources through one queue: ns queue.tcl SEED >trace. Lines `+` are arrivals that were
# taken or not, `d` drops; droptail.txt has the gaps between arrivals in microseconds, dropped
# packets marked with an exclamation mark.
ns-random [lindex $argv 0]
set ns [new Simulator]
set a [$ns node]
set b [$ns node]
$ns simplex-link $a $b 10Mb 1ms DropTail
$ns queue-limit $a $b 20
$ns trace-queue $a $b stdout
for {set i 0} {$i < 10} {incr i} {
    set sender [new Agent/UDP]
    $sender set packetSize_ 1000
    $ns attach-agent $a $sender
    set sink [new Agent/Null]
    $ns attach-agent $b $sink
    $ns connect $sender $sink
    set source [new Application/Traffic/Exponential]
    $source set packetSize_ 1000
    $source set burst_time_ 20ms
    $source set idle_time_ 20ms
    $source set rate_ 2.2e6
    $source attach-agent $sender
    $ns at [expr {0.0137 * $i}] "$source start"
}
$ns at 1.6 "exit 0"
$ns run
