#!/bin/sh
# Makes the files of this folder with openssl 3 and Java 17's keytool, for a hundred years. The passwords are in the names of the tests'
# constants (tests/broker/security/tls/stores.py).
set -eu
cd "$(dirname "$0")"
rm -f ./*.pem ./*.key ./*.p12 ./*.jks
days=36500
ca() { # NAME SUBJECT
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.pem" -days $days -subj "$2" 2>/dev/null
}
leaf() { # NAME SUBJECT EXTENSIONS CA [req arguments]
    name=$1 subject=$2 extensions=$3 issuer=$4
    shift 4
    openssl req -new "$@" -nodes -keyout "$name.key" -out "$name.csr" -subj "$subject" 2>/dev/null
    printf '%s\n' "$extensions" >"$name.ext"
    openssl x509 -req -in "$name.csr" -CA "$issuer.pem" -CAkey "$issuer.key" -out "$name.pem" -days "${lifetime:-$days}" -extfile "$name.ext" 2>/dev/null
    rm "$name.csr" "$name.ext"
}
P256="-newkey ec -pkeyopt ec_paramgen_curve:P-256"
ca ca "/O=Barnabas tests/CN=CA"
ca other-ca "/O=Barnabas tests/CN=Another CA"
leaf intermediate "/O=Barnabas tests/CN=Intermediate" "basicConstraints=critical,CA:TRUE" ca $P256
leaf server "/C=DE/O=Barnabas tests/CN=localhost" "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1" intermediate $P256
leaf rsa "/O=Barnabas tests/CN=localhost" "subjectAltName=DNS:localhost" ca -newkey rsa:2048
leaf client "/O=Barnabas tests/CN=alice/emailAddress=alice@example.org" "extendedKeyUsage=clientAuth" ca $P256
leaf stranger "/O=Barnabas tests/CN=eve" "extendedKeyUsage=clientAuth" other-ca $P256
lifetime=-1
leaf expired "/O=Barnabas tests/CN=localhost" "subjectAltName=DNS:localhost" ca $P256
cat intermediate.pem >>server.pem

openssl pkcs8 -topk8 -in server.key -out server-encrypted.key -v2 aes-256-cbc -passout pass:key-secret
openssl pkcs12 -export -inkey server.key -in server.pem -out bundle.p12 -name kafka -passout pass:store-secret
openssl pkcs12 -export -inkey rsa.key -in rsa.pem -out rsa.p12 -name kafka -passout pass:store-secret
openssl pkcs12 -export -inkey server.key -in server.pem -out triple-des.p12 -name kafka -passout pass:store-secret \
    -certpbe PBE-SHA1-3DES -keypbe PBE-SHA1-3DES -macalg sha1
openssl pkcs12 -export -inkey server.key -in server.pem -out plain-certificates.p12 -name kafka -passout pass:store-secret -certpbe NONE
openssl pkcs12 -export -nokeys -in ca.pem -out openssl-trust.p12 -passout pass:store-secret
keytool() { command keytool -J-Duser.language=en "$@" 2>/dev/null; }
keytool -importkeystore -srckeystore bundle.p12 -srcstorepass store-secret -destkeystore server.p12 -deststoretype PKCS12 -deststorepass store-secret
keytool -importkeystore -srckeystore bundle.p12 -srcstorepass store-secret -destkeystore server.jks -deststoretype JKS -deststorepass store-secret -destkeypass key-secret
keytool -importkeystore -srckeystore rsa.p12 -srcstorepass store-secret -destkeystore rsa.jks -deststoretype JKS -deststorepass store-secret -destkeypass store-secret
keytool -J-Dkeystore.pkcs12.legacy -importkeystore -srckeystore bundle.p12 -srcstorepass store-secret -destkeystore legacy.p12 -deststoretype PKCS12 -deststorepass store-secret
for type in JKS PKCS12; do
    extension=$(test $type = JKS && echo jks || echo p12)
    for name in ca other-ca; do
        keytool -importcert -noprompt -alias $name -file $name.pem -keystore trust.$extension -storetype $type -storepass store-secret
    done
done
keytool -J-Dkeystore.pkcs12.legacy -importcert -noprompt -alias ca -file ca.pem -keystore legacy-trust.p12 -storetype PKCS12 -storepass store-secret
rm -f rsa.p12 ca.key other-ca.key intermediate.key intermediate.pem
