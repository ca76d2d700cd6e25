module "vpc" {
  source = "../.."

  name         = "private-only"
  cidr_block   = "10.30.0.0/16"
  nat_gateways = "none"

  subnets = {
    app = { type = "isolated", availability_zones = ["eu-west-1a", "eu-west-1b"] }
  }

  interface_endpoints = {
    ecr = { service = "com.amazonaws.eu-west-1.ecr.dkr", subnet_group = "app" }
  }
}
