// Connections by TLS and SCRAM, where the command line says so.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
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

// conversation is what sarama wants of a library of SCRAM.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

func secure(config *sarama.Config) *sarama.Config {
	l := readLogin()
	if l == nil {
		return config
	}
	hashes := map[string]scram.HashGeneratorFcn{sarama.SASLTypeSCRAMSHA256: scram.SHA256, sarama.SASLTypeSCRAMSHA512: scram.SHA512}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, l.tls()
	config.Net.SASL.Enable, config.Net.SASL.Handshake = true, true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = l.User, l.Password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hashes[l.Mechanism]} }
	return config
}
