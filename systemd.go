package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// watchdogShare is how many looks at the server's health there are in the time after which systemd would start it anew.
const watchdogShare = 3

// tellSystemd tells systemd, if that started the process and wants to know, that the server is ready, that it's well (WatchdogSec of the unit), and, when
// ctx ends, that it stops. done waits until nothing is told any more.
func tellSystemd(ctx context.Context, s *server.Server, log *slog.Logger) (done func()) {
	told, err := daemon.SdNotify(false, daemon.SdNotifyReady)
	if err != nil {
		log.Warn("systemd can't be told that the server is ready", "error", err)
	}
	if !told {
		return func() {}
	}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog's time can't be read, so that it isn't served", "error", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if every > 0 {
			watchdog(ctx, s, every/watchdogShare)
		}
		<-ctx.Done()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) // systemd learns it from the signal, too
	}()
	return func() { <-ended }
}

// watchdog tells systemd at intervals that the server answers, until ctx ends. A server that doesn't answer isn't told of.
func watchdog(ctx context.Context, s *server.Server, every time.Duration) {
	url, transport := s.URL(), &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // it asks itself
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	asking := &http.Client{Transport: transport, Timeout: every}
	defer asking.CloseIdleConnections()
	for tick := time.NewTicker(every); ; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
		if err == nil {
			response, err := asking.Do(request)
			if err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK {
				_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next one comes
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}
