package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"

	"sallyport/executor/dispatch"
	"sallyport/executor/webhook"
	"sallyport/internal/fileowner"
)

// webhookSettings say who is told of pending approvals; without a URL nobody is.
type webhookSettings struct {
	URL string `env:"APPROVAL_WEBHOOK"`
	// SecretFile holds the key that signs.
	SecretFile string `env:"APPROVAL_WEBHOOK_SECRET_FILE"`
	// Private are the ranges of private addresses that URL may lead to.
	Private []netip.Prefix `env:"APPROVAL_WEBHOOK_PRIVATE"`
}

// setUpWebhook has pending approvals announced. The key is in nothing that is kept.
func setUpWebhook(s settings, config *dispatch.Config) error {
	w := s.Webhook
	if w.URL == "" && w.SecretFile == "" && len(w.Private) == 0 {
		return nil
	}
	if w.URL == "" || w.SecretFile == "" {
		return errors.New("settings: SALLYPORT_APPROVAL_WEBHOOK and SALLYPORT_APPROVAL_WEBHOOK_SECRET_FILE must both be set: an address, and a file with the key that signs")
	}
	secret, err := readSecret(w.SecretFile)
	if err != nil {
		return fmt.Errorf("settings: SALLYPORT_APPROVAL_WEBHOOK_SECRET_FILE: %w", err)
	}
	roots, err := roots(s.ExtraCA)
	if err != nil {
		return err
	}
	to, err := webhook.New(webhook.Config{URL: w.URL, Secret: secret, Private: w.Private, Roots: roots})
	if err != nil {
		return fmt.Errorf("settings: SALLYPORT_APPROVAL_WEBHOOK: %w", err)
	}
	hidden := map[string]string{"SALLYPORT_APPROVAL_WEBHOOK_SECRET_FILE": strings.TrimPrefix(secret, "whsec_")}
	maps.Copy(hidden, config.Redact)
	config.Redact, config.Announce = hidden, to
	return nil
}

// readSecret reads a file that nobody but its owner can read.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if err := fileowner.Private(path, info); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}
