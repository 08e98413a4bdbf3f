// Connections by TLS and SCRAM, where the command line says so.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// login is the second word of the command line, if there is one: how to log in, by TLS. Passwords in it are made for a test.
type login struct {
	Authority string `json:"ca"` // of PEM
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
}

func readLogin() *login {
	if len(os.Args) < 3 {
		return nil
	}
	read := &login{}
	if err := json.Unmarshal([]byte(os.Args[2]), read); err != nil {
		panic(err)
	}
	return read
}

func (l *login) tls() *tls.Config {
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(l.Authority)) {
		panic("no certificate of an authority")
	}
	return &tls.Config{RootCAs: trusted}
}

func (l *login) sasl() sasl.Mechanism {
	hashes := map[string]scram.Algorithm{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}
	mechanism, err := scram.Mechanism(hashes[l.Mechanism], l.User, l.Password)
	if err != nil {
		panic(err)
	}
	return mechanism
}

// transport is a client's and a writer's; nil is kafka-go's own.
func transport() kafka.RoundTripper {
	l := readLogin()
	if l == nil {
		return nil
	}
	return &kafka.Transport{TLS: l.tls(), SASL: l.sasl()}
}

// dialer is a reader's and a group's; nil is kafka-go's own.
func dialer() *kafka.Dialer {
	l := readLogin()
	if l == nil {
		return nil
	}
	return &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, TLS: l.tls(), SASLMechanism: l.sasl()}
}
