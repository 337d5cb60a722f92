module sallyport/bench/tcpproxy

go 1.26.0

require github.com/inetaf/tcpproxy v0.0.0-20260515195445-c159a6051109
