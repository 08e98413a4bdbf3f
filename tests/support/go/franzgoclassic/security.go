// Connections by TLS and SCRAM, where the command line says so.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

// security is nothing where nothing was said.
func security() []kgo.Opt {
	l := readLogin()
	if l == nil {
		return nil
	}
	user := scram.Auth{User: l.User, Pass: l.Password}
	mechanism := user.AsSha256Mechanism()
	if l.Mechanism == "SCRAM-SHA-512" {
		mechanism = user.AsSha512Mechanism()
	}
	return []kgo.Opt{kgo.DialTLSConfig(l.tls()), kgo.SASL(mechanism)}
}
