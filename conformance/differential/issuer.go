package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// podKey is the public key in the requests of the scenario certificates.
var podKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()

// issued is what a placeholder stands for that is about a certificate, as a part of a text in JSON; "" for any other. Certificates are given
// to podKey, and have to begin at about the time at which they're given: that is when a run first names one. ${at:1h} is a time an hour later,
// and "${leaf:0s 24h}" a certificate from that moment on for a day; names may follow, those with an @ of mailboxes.
func (r *run) issued(placeholder string) string {
	kind, of, _ := strings.Cut(placeholder, ":")
	if kind != "at" && kind != "leaf" {
		return ""
	}
	if r.issuedAt.IsZero() {
		r.issuedAt = time.Now().Truncate(time.Second).UTC()
	}
	words := strings.Fields(of)
	if kind == "at" {
		return r.issuedAt.Add(long(words[0])).Format(time.RFC3339)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: r.issuedAt.Add(long(words[0])), NotAfter: r.issuedAt.Add(long(words[1]))}
	for _, name := range words[2:] {
		if strings.Contains(name, "@") {
			leaf.EmailAddresses = append(leaf.EmailAddresses, name)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	authority := ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", ed25519.SeedSize)))
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, podKey, authority)
	if err != nil {
		panic(fmt.Errorf("${%s}: %w", placeholder, err))
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	quoted := strings.Trim(strconv.Quote(text), `"`) // as JSON has it, and refusals
	r.normal.call(text, "<"+placeholder+">")
	r.normal.call(quoted, "<"+placeholder+">")
	return quoted
}

// long is a duration that a scenario has.
func long(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}
