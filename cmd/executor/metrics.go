package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The bounds of a scrape.
const (
	scrapeHeader = 5 * time.Second
	scrapeAnswer = 30 * time.Second
)

// A scraper is the listener of the metrics; the zero value is none.
type scraper struct{ net.Listener }

// listenMetrics listens on address, which may be empty for none.
func listenMetrics(address string) (scraper, error) {
	if address == "" {
		return scraper{}, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return scraper{}, fmt.Errorf("listen for metrics: %w", err)
	}
	return scraper{ln}, nil
}

// Close closes the listener, if there is one.
func (s scraper) Close() error {
	if s.Listener == nil {
		return nil
	}
	return s.Listener.Close()
}

// serve serves h until end is called.
func (s scraper) serve(h http.Handler, log *slog.Logger) (end func()) {
	if s.Listener == nil {
		return func() {}
	}
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: scrapeHeader, ReadTimeout: scrapeHeader, WriteTimeout: scrapeAnswer,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := web.Serve(s.Listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the metrics are no longer served", "error", err)
		}
	}()
	log.Info("metrics are served", "listen", s.Addr().String())
	return func() {
		web.Close()
		<-ended
	}
}
