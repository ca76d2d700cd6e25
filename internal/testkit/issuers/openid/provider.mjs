// An OpenID Connect provider on loopback, for tests of a login: `node provider.mjs PORT [CALLBACK...]`. Anybody may sign
// in, with any password. It keeps everything in memory, under keys of this run. The callbacks are the redirects of web clients.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const callbacks = process.argv.slice(3);
const issuer = `http://127.0.0.1:${port}`;
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'larder-cli',
      // To a native client the port of a loopback address does not matter (RFC 8252, section 7.3). Its users are asked for
      // consent each time.
      application_type: 'native',
      redirect_uris: ['http://localhost/login'],
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code'],
      response_types: ['code'],
    },
    ...(callbacks.length === 0 ? [] : [
      {
        client_id: 'larder-web',
        redirect_uris: callbacks,
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
      {
        client_id: 'larder-web:confidential',
        client_secret: 'not a secret: +/=%',
        redirect_uris: callbacks,
        token_endpoint_auth_method: 'client_secret_basic',
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
    ]),
  ],
  pkce: { required: () => true }, // S256 is the only method it knows

  findAccount: (_ctx, login) => ({ accountId: login, claims: () => ({ sub: login }) }),

  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      // A client that named a resource when it asked for the code does not name it again when it redeems the code.
      useGrantedResource: () => true,
      // Any registry will do. Access tokens are JWTs for it; without a resource they are opaque.
      getResourceServerInfo: (_ctx, resource) => ({
        audience: resource,
        scope: 'openid profile email registry',
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  extraTokenClaims: (_ctx, token) => (token.resourceServer ? { groups: ['platform'] } : undefined),

  // What is not set here it warns of, as it does of the forms and the memory, which are for development.
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig' }] },
  cookies: { keys: [randomBytes(32).toString('base64url')] },
  ttl: { AccessToken: 300, AuthorizationCode: 60, Grant: 600, IdToken: 300, Interaction: 600, Session: 600 },
});

provider.listen(port, '127.0.0.1', () => console.log(`${issuer} listens`));
